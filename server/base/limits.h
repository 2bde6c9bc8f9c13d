/* base/limits.h: every figure of the contract, once. Bytes unless the name says otherwise. */
#pragma once

/* Names and texts (mission.md 1). "Chars" are Unicode code points. */
#define LIMIT_CHANNEL_KEY    200
#define LIMIT_TEXT_CHARS     32000
#define LIMIT_SPEAKER_CHARS  256
#define LIMIT_METADATA_KEYS  16
#define LIMIT_METADATA_KEY   64
#define LIMIT_METADATA_VALUE 512
#define LIMIT_CALL_ID_CHARS  128

/* Bodies, turn line, reply (mission.md 1). */
#define LIMIT_TURN_BODY        (384 * 1024)
#define LIMIT_SMALL_BODY       (16 * 1024)
#define LIMIT_JSON_DEPTH       64
#define LIMIT_TURN_LINE        (256 * 1024)
#define LIMIT_WORKER_ADDS      (24 * 1024) /* room for prompt frame, memory previews and tools beside messages */
#define LIMIT_STDOUT           (2 * 1024 * 1024)
#define LIMIT_REPLY_TEXT_CHARS 100000
#define LIMIT_MESSAGES_BYTES   (192 * 1024)

/* Model input (mission.md 5). */
#define LIMIT_MESSAGES   128
#define LIMIT_TOOLS      128
#define LIMIT_TOOL_CALLS 8
#define LIMIT_OWN_TOOLS  3 /* places of LIMIT_TOOLS that the worker's memory tools take */

/* Broker (mission.md 6). */
#define LIMIT_BROKER_BODY        (256 * 1024)
#define LIMIT_UPSTREAM_ANSWER    (1024 * 1024)
#define LIMIT_BROKER_CONNECTIONS 16
#define LIMIT_BROKER_HEAD_S      10
#define LIMIT_BROKER_CALL_MS     60000
#define LIMIT_CREDENTIAL_MIN     16
#define LIMIT_CREDENTIAL_MAX     8192
#define LIMIT_SOCKET_PATH        100
#define LIMIT_SCRIPT_SLEEP_MS    (LIMIT_BROKER_CALL_MS - 1000) /* of one call, which still answers in time */

/* The container (mission.md 2). */
#define LIMIT_REMOVE_TRY_MS 5000

/* Disk floor under which new turns are refused (mission.md 3). */
#define LIMIT_DISK_FREE_BYTES   (1024LL * 1024 * 1024)
#define LIMIT_DISK_FREE_PERCENT 5

/* The sealed worker (mission.md 7). "Encoded" is the size inside a JSON string. */
#define LIMIT_WORKER_MODEL_CALLS 12
#define LIMIT_WORKER_EXCHANGES   10
#define LIMIT_WORKER_EXCHANGE    (8 * 1024)  /* encoded: user and assistant text together */
#define LIMIT_WORKER_MESSAGE     (48 * 1024) /* encoded */
#define LIMIT_WORKER_TOOLS       (32 * 1024) /* all tool definitions as JSON */
#define LIMIT_TOOL_DESCRIPTION   16          /* encoded: no description is cut to less */
#define LIMIT_OWN_TOOLS_BYTES    1257        /* of LIMIT_WORKER_TOOLS that the memory tools take, so cut */
#define LIMIT_WORKER_PREVIEW     (4 * 1024)  /* of one memory scope */
#define LIMIT_WORKER_ANSWER      (4 * 1024)  /* encoded: one tool answer */
#define LIMIT_WORKER_ARGUMENTS   (2 * 1024)  /* encoded: arguments of one call, in the context */
#define LIMIT_WORKER_SAYING      (8 * 1024)  /* encoded: what a model says beside its tool calls */
#define LIMIT_MEMORY_ENTRIES     256         /* of one scope */
#define LIMIT_MEMORY_KEY_CHARS   128
#define LIMIT_MEMORY_VALUE_CHARS 2048
#define LIMIT_MEMORY_BYTES       (512 * 1024)
#define LIMIT_HISTORY_FILE       (256 * 1024)

/* The HTTP front (http.md). Times in milliseconds. */
#define LIMIT_HTTP_CONNECTIONS  2048        /* beyond it 503 */
#define LIMIT_HTTP_RESERVE      128         /* beyond those, while idle ones are being closed for new ones */
#define LIMIT_HTTP_WAITING      2048        /* clients whose head is not whole; the oldest gives way */
#define LIMIT_HTTP_OTHER_FDS    256         /* descriptors of the process that are no clients */
#define LIMIT_HTTP_MEMORY       (32 * 1024) /* the library's memory of one connection, touched as needed */
#define LIMIT_HTTP_HEAD         (16 * 1024)
#define LIMIT_HTTP_TARGET       4096
#define LIMIT_HTTP_FIELDS       100  /* lines of a head; each takes 64 bytes of the library's memory more */
#define LIMIT_HTTP_QUERY        16   /* parameters, and so does each of these */
#define LIMIT_HTTP_COOKIES      32   /* in a line, and so does each of these */
#define LIMIT_HTTP_COOKIE       4096 /* bytes of a line, which the library copies */
#define LIMIT_HTTP_SWALLOW      (1024 * 1024)      /* of a refused body is read, so that the answer arrives */
#define LIMIT_HTTP_BODIES       (64 * 1024 * 1024) /* all bodies being received or kept */
#define LIMIT_HTTP_HEAD_MS      10000
#define LIMIT_HTTP_BODY_MS      30000
#define LIMIT_HTTP_REPLY_MS     60000
#define LIMIT_HTTP_IDLE_MS      75000
#define LIMIT_HTTP_REFUSED_MS   5000        /* for the body of a request that is refused already */
#define LIMIT_HTTP_LINGER_MS    2000        /* after an answer given before the request was read */
#define LIMIT_HTTP_PROBE_MS     15000       /* between probes of a client that closed its sending half */
#define LIMIT_HTTP_BEAT_MS      15000       /* a stream says at least that often that it lives */
#define LIMIT_HTTP_STREAM_SEND  (64 * 1024) /* of a stream waits in the kernel for its reader */
#define LIMIT_HTTP_STREAM_PIECE (4 * 1024 * 1024) /* at once; holds any one event */

/* Events are read so many bytes at a time, or one if that is larger. */
#define LIMIT_EVENTS_BATCH (32 * 1024)

/* Configuration file. */
#define LIMIT_CONFIG_FILE (1024 * 1024)

/* What the service and the worker agree on. */
#define DUMMY_KEY "sandbox-dummy-key"
