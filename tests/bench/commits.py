"""How fast turns are accepted, beside what the machine can commit: 64 clients submit asynchronously while no turn runs. Rounds of
the two take turns, so that a busy machine slows both; what is compared are the medians of one run."""
import argparse
import json
import pathlib
import statistics
import subprocess

from lib.cloister import Server

THREADS = 64


def rate(*command):
    done = subprocess.run([str(word) for word in command], check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def measure(program, rounds, seconds):
    """[(plain rows a second, rows of turns a second, turns that the service accepts a second)] of each round."""
    found = []
    limits = {"per_channel": 1000000, "per_key": 1000000, "total": 1000000}
    # Without an engine the queue is held.
    with Server(start=False, engine_socket="/nonexistent/engine.sock", queue=limits,
                model={"url": "embedded:echo", "allow_script": None}) as server:
        server.start(ready=False)
        key = server.key("bench", scopes=["turns", "channels"], channels=["bench:*"])
        with server.client(key) as client:
            for number in range(THREADS):
                assert client.call("PUT", f"/v1/channels/bench:c{number}", {"enabled": True}).status in (200, 201)
        for number in range(rounds + 1):
            state, files = server.config["state_file"], [server.root / f"{name}-{number}.db" for name in ("plain", "turns")]
            three = (rate(program, "plain", files[0], seconds), rate(program, "turns", files[1], state, seconds),
                     rate(program, "submit", server.port, key, "bench:c", seconds))
            if number:  # the first warms up
                found.append(three)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1 s instead of 7 of 2 s")
    parser.add_argument("--json", type=pathlib.Path, help="also write the figures there")
    arguments = parser.parse_args()
    rounds, seconds = (3, 1) if arguments.quick else (7, 2)
    found = measure(arguments.program, rounds, seconds)
    plain, turns, service = (statistics.median(column) for column in zip(*found))
    ratios = [round(accepted / rows, 2) for _, rows, accepted in found]
    figures = {"plain_rows_per_second": plain, "turn_rows_per_second": turns, "accepted_turns_per_second": service,
               "ratio": statistics.median(ratios), "ratios": ratios,
               "ratio_to_plain_rows": round(statistics.median(accepted / rows for rows, _, accepted in found), 2)}
    print(f"\naccepting turns: {rounds} rounds of {seconds} s, interleaved; {THREADS} clients, no turn runs")
    print(f"the machine's own group commit, plain rows of 256 bytes a second: {plain:.0f}")
    print(f"the same, with what a turn writes: {turns:.0f}")
    print(f"turns accepted a second, over HTTP: {service:.0f}")
    print(f"ratio to what a turn writes: {figures['ratio']} (each round: {ratios}); at least 0.5 is wanted")
    print(f"ratio to plain rows: {figures['ratio_to_plain_rows']}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
