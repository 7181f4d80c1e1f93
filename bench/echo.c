/* echo: the least that a server on libzmq can do.
 *
 *   echo bind ENDPOINT      a ROUTER that sends every message back unchanged, for the bare round trip
 *   echo connect ENDPOINT   the same as a DEALER behind a proxy, as its worker
 *   echo sink ENDPOINT      a ROUTER that copies the payload once into memory of its own and sends only the header back
 *
 * Prints "ready ENDPOINT" and runs until it is killed. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Take messages of identity, header and payload: copy the payload once, send identity and header back. */
static int sink(void *socket)
{
    zmq_msg_t identity, header, payload;
    char *memory = NULL;
    size_t capacity = 0;
    zmq_msg_init(&identity);
    zmq_msg_init(&header);
    zmq_msg_init(&payload);
    for (;;) {
        if (zmq_msg_recv(&identity, socket, 0) < 0) {
            if (zmq_errno() == EINTR) continue;
            return fail("receive");
        }
        if (zmq_msg_recv(&header, socket, 0) < 0 || zmq_msg_recv(&payload, socket, 0) < 0) return fail("receive");
        size_t size = zmq_msg_size(&payload);
        if (capacity < size && !(memory = realloc(memory, capacity = size))) return fail("memory");
        memcpy(memory, zmq_msg_data(&payload), size);
        if (zmq_msg_send(&identity, socket, ZMQ_SNDMORE) < 0 || zmq_msg_send(&header, socket, 0) < 0) return fail("send");
    }
}

int main(int argc, char **argv)
{
    int is_sink = argc == 3 && !strcmp(argv[1], "sink");
    int is_server = is_sink || (argc == 3 && !strcmp(argv[1], "bind"));
    if (!is_server && (argc != 3 || strcmp(argv[1], "connect"))) {
        fprintf(stderr, "usage: echo bind|connect|sink ENDPOINT\n");
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
    return is_sink ? sink(socket) : serve(socket);
}
