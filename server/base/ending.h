/* base/ending.h: how a turn can end badly (mission.md 1): the name of error.code and our sentence,
 * error.detail, which tells the operator what to do. An engine's or upstream's text never goes there. */
#pragma once

#define ENDING_TABLE(X)                                                                                      \
    X(END_TIMEOUT, "timeout",                                                                                \
      "The turn reached its deadline, of running (limits.timeout_ms) or of waiting (queue.wait_ms); raise "  \
      "it or ask for less.")                                                                                 \
    X(END_CANCELED, "canceled",                                                                              \
      "The turn was stopped by request before it ended; send it again if it is still wanted.")               \
    X(END_CHANNEL_DISABLED, "channel_disabled",                                                              \
      "The channel was turned off while the turn waited; turn it on and send it again.")                     \
    X(END_OUT_OF_MEMORY, "out_of_memory",                                                                    \
      "The worker used up limits.memory_mb; raise it or make the worker leaner.")                            \
    X(END_PID_LIMIT, "pid_limit", "The worker reached limits.pids; raise it or start fewer processes.")      \
    X(END_EXIT_CODE, "exit_code",                                                                            \
      "The worker ended with an exit code other than 0 and without a reply; see its stderr.")                \
    X(END_SIGNAL, "signal", "The worker was ended by a signal of its own; see its stderr.")                  \
    X(END_OUTPUT_LIMIT, "output_limit",                                                                      \
      "The worker wrote more than a reply may hold; make it write one line of JSON only.")                   \
    X(END_INVALID_REPLY, "invalid_reply",                                                                    \
      "The worker's reply is not one valid line of JSON; see docs/worker.md.")                               \
    X(END_WORKER_FAILED, "worker_failed", "The worker itself reported a failure; see its stderr.")           \
    X(END_IMAGE_MISSING, "image_missing", "The worker image is not on the engine; build or import it.")      \
    X(END_ENGINE_UNAVAILABLE, "engine_unavailable",                                                          \
      "The container engine was lost; start it, the queue goes on by itself.")                               \
    X(END_ENGINE_ERROR, "engine_error", "The container engine refused the container; see the server log.")   \
    X(END_MODEL_REFUSED, "model_refused",                                                                    \
      "The model's server did not give a usable answer; see the server log.")                                \
    X(END_BUDGET_SPENT, "budget_spent", "The turn used up model.max_calls; raise it or ask for less.")       \
    X(END_DISK_FULL, "disk_full", "The disk is nearly full; make room, the service goes on by itself.")      \
    X(END_SERVER_RESTARTED, "server_restarted", "The service stopped while the turn ran; send it again.")    \
    X(END_WORKSPACE_VIOLATION, "workspace_violation",                                                        \
      "The channel's workspace is not a plain folder of the service; repair it.")

enum ending {
    END_NONE = 0,
#define X(code, name, detail) code,
    ENDING_TABLE(X)
#undef X
};

const char *ending_name(enum ending e);   /* "timeout"; "" for END_NONE */
const char *ending_detail(enum ending e); /* the sentence */
