/* echo: send every message back unchanged, frame by frame and without copying: the least that a server on libzmq can do.
 *
 *   echo bind ENDPOINT      a ROUTER of its own, for the bare round trip
 *   echo connect ENDPOINT   a DEALER behind a proxy, as its worker
 *
 * Prints "ready ENDPOINT" and runs until it is killed. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <zmq.h>

static int fail(const char *what)
{
    fprintf(stderr, "echo: %s: %s\n", what, zmq_strerror(zmq_errno()));
    return 2;
}

static int serve(void *socket)
{
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    for (;;) {
        if (zmq_msg_recv(&frame, socket, 0) < 0) {
            if (zmq_errno() == EINTR) continue;
            return fail("receive");
        }
        if (zmq_msg_send(&frame, socket, zmq_msg_more(&frame) ? ZMQ_SNDMORE : 0) < 0) return fail("send");
    }
}

int main(int argc, char **argv)
{
    int is_server = argc == 3 && !strcmp(argv[1], "bind");
    if (!is_server && (argc != 3 || strcmp(argv[1], "connect"))) {
        fprintf(stderr, "usage: echo bind|connect ENDPOINT\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    void *socket = zmq_socket(zmq_ctx_new(), is_server ? ZMQ_ROUTER : ZMQ_DEALER);
    int unlimited = 0;
    zmq_setsockopt(socket, ZMQ_SNDHWM, &unlimited, sizeof unlimited);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &unlimited, sizeof unlimited);
    if (is_server ? zmq_bind(socket, argv[2]) : zmq_connect(socket, argv[2])) return fail(argv[2]);
    printf("ready %s\n", argv[2]);
    fflush(stdout);
    return serve(socket);
}
