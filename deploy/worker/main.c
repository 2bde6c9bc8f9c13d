/* cloister-worker: the agent inside the sealed container. A turn on standard input, a reply on standard
 * output. */
#include "worker.h"

#define BROKER_SOCKET "/broker/broker.sock"

int main(void)
{
    return worker_main(STDIN_FILENO, STDOUT_FILENO, BROKER_SOCKET);
}
