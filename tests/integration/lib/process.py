"""Programs that a test has started."""
import subprocess


def end(process, patience=10):
    """Asks it to end, and makes it end when it does not within so many seconds."""
    process.terminate()
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=10)
