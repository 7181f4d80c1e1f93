/* load: one load generator for every server of the benchmark that speaks ZeroMQ.
 *
 * Messages come from a table of prebuilt ones (requests.h); each request gets an id of its own. Each id must be answered exactly once;
 * what is lost, doubled, an error or not understood is counted. Two ways to send:
 *
 *   closed loop   (no --rate)  --outstanding requests are under way at any time; a request is due when it is sent
 *   open loop     (--rate)     requests are due at fixed or exponential distances, whatever the server does; latency runs from the
 *                              moment a request was due, so a stall is charged to all requests that it delayed
 *
 * One thread owns the sockets; it sleeps when there is nothing to do. The report is described in account.h. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <zmq.h>

#include "account.h"
#include "requests.h"

enum { BURST = 64 }; /* replies taken before the schedule is looked at again */

struct load {
    struct options options;
    struct requests requests;
    struct account account;
    void *sockets[MAX_CONNECTIONS];
    struct pollfd fds[MAX_CONNECTIONS];
    uint64_t messages_sent;
};

/* Payloads are lent to ZeroMQ: they live as long as the process. */
static void keep(void *bytes, void *hint)
{
    (void)bytes;
    (void)hint;
}

static void send_frame(void *socket, const struct frame *frame, bool is_header, bool is_last)
{
    zmq_msg_t message;
    /* A header is patched again for a later request while ZeroMQ may still hold it, so it is copied. */
    int failed = is_header ? zmq_msg_init_size(&message, frame->size) : zmq_msg_init_data(&message, frame->bytes, frame->size, keep, NULL);
    if (failed) die("send", "out of memory");
    if (is_header) memcpy(zmq_msg_data(&message), frame->bytes, frame->size);
    if (zmq_msg_send(&message, socket, ZMQ_DONTWAIT | (is_last ? 0 : ZMQ_SNDMORE)) < 0) die("send", zmq_strerror(zmq_errno()));
}

/* Send the next message; its requests were due at `due_ns`, or, negative, are due now. */
static void send_message(struct load *load, int64_t due_ns)
{
    const struct requests *requests = &load->requests;
    struct frame *frames = requests->table + (load->messages_sent % requests->messages) * requests->frames;
    void *socket = load->sockets[load->messages_sent++ % load->options.connections];
    int64_t now = now_ns();
    for (uint64_t index = 0; index < requests->frames; index++) {
        bool is_header = index < requests->headers;
        if (is_header) {
            uint64_t id = book_sent(&load->account, due_ns, now);
            memcpy(frames[index].bytes + requests->id_at, &id, sizeof id);
        }
        send_frame(socket, &frames[index], is_header, index + 1 == requests->frames);
    }
}

/* True while another message may be sent: never more than --outstanding requests are under way. */
static bool has_room(const struct load *load)
{
    uint64_t under_way = load->account.sent - load->account.answered;
    return under_way == 0 || under_way + load->requests.headers <= load->options.outstanding;
}

/* Send whatever is due now. A message of several requests is due with its first one. */
static void send_due(struct load *load, int64_t now)
{
    struct account *account = &load->account;
    while (has_room(load)) {
        if (load->options.rate <= 0) {
            send_message(load, -1);
            continue;
        }
        if (account->next_due_ns > now) return;
        send_message(load, account->next_due_ns);
        for (uint64_t index = 0; index < load->requests.headers; index++) schedule_next(account);
    }
}

/* Book one frame that is a reply; true when the frames after it are replies as well. */
static bool take_reply(struct load *load, zmq_msg_t *frame)
{
    const uint8_t *header = zmq_msg_data(frame);
    size_t size = zmq_msg_size(frame);
    struct reply reply = load->options.is_echo ? read_echo(header, size, load->requests.id_at) : read_message(header, size);
    book_reply(&load->account, &reply, now_ns());
    return reply.is_packed || (load->options.is_echo && load->requests.headers > 1);
}

/* Take one message, all frames of it; false when there is none. */
static bool receive_message(struct load *load, void *socket)
{
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0) {
        if (zmq_errno() != EAGAIN && zmq_errno() != EINTR) die("receive", zmq_strerror(zmq_errno()));
        return false;
    }
    bool has_replies = take_reply(load, &frame);
    while (zmq_msg_more(&frame)) {
        zmq_msg_recv(&frame, socket, 0);
        if (has_replies) take_reply(load, &frame);
    }
    zmq_msg_close(&frame);
    return true;
}

static void receive_burst(struct load *load)
{
    for (unsigned index = 0; index < load->options.connections; index++)
        for (unsigned taken = 0; taken < BURST && receive_message(load, load->sockets[index]); taken++) continue;
}

/* Sleep until a reply is there or wake_ns has come. */
static void wait_for_reply(struct load *load, int64_t wake_ns)
{
    /* The descriptor of a ZeroMQ socket signals changes only: it may be slept on only after ZMQ_EVENTS said that nothing is there. */
    for (unsigned index = 0; index < load->options.connections; index++) {
        int events;
        size_t size = sizeof events;
        if (zmq_getsockopt(load->sockets[index], ZMQ_EVENTS, &events, &size)) die("events", zmq_strerror(zmq_errno()));
        if (events & ZMQ_POLLIN) return;
    }
    int64_t left_ns = wake_ns - now_ns();
    if (left_ns <= 0) return;
    struct timespec timeout = {left_ns / SECOND_NS, left_ns % SECOND_NS};
    /* ppoll, since zmq_poll knows only milliseconds. */
    ppoll(load->fds, load->options.connections, &timeout, NULL);
}

static void run(struct load *load)
{
    struct account *account = &load->account;
    open_account(account, &load->options);
    for (int64_t now = account->start_ns; !is_finished(account, now); now = now_ns()) {
        mark_phase(account, now);
        receive_burst(load);
        if (now < account->measure_to_ns) send_due(load, now);
        wait_for_reply(load, next_wake_ns(account, now, has_room(load)));
    }
}

/* Send the first message and wait for its answer, so that the server knows what this connection takes. */
static void greet(void *socket, const char *path, double limit_s)
{
    uint64_t size;
    uint8_t *hello = read_file(path, &size);
    int limit_ms = (int)(limit_s * 1000), forever = -1;
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &limit_ms, sizeof limit_ms);
    if (zmq_send(socket, hello, size, 0) < 0 || zmq_msg_recv(&frame, socket, 0) < 0) die("hello", zmq_strerror(zmq_errno()));
    while (zmq_msg_more(&frame)) zmq_msg_recv(&frame, socket, 0);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &forever, sizeof forever);
    zmq_msg_close(&frame);
    free(hello);
}

static void connect_all(struct load *load)
{
    void *context = zmq_ctx_new();
    int unlimited = 0, linger_ms = 0;
    for (unsigned index = 0; index < load->options.connections; index++) {
        void *socket = load->sockets[index] = zmq_socket(context, ZMQ_DEALER);
        size_t size = sizeof load->fds[index].fd;
        zmq_setsockopt(socket, ZMQ_SNDHWM, &unlimited, sizeof unlimited);
        zmq_setsockopt(socket, ZMQ_RCVHWM, &unlimited, sizeof unlimited);
        zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
        if (zmq_connect(socket, load->options.endpoint)) die(load->options.endpoint, zmq_strerror(zmq_errno()));
        zmq_getsockopt(socket, ZMQ_FD, &load->fds[index].fd, &size);
        load->fds[index].events = POLLIN;
        if (load->options.hello_path) greet(socket, load->options.hello_path, load->options.drain_s);
    }
}

int main(int argc, char **argv)
{
    static struct load load;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1UL); /* the default of 50 us would make every open-loop request late */
    load.options = parse_options(argc, argv);
    load.requests = read_requests(load.options.requests_path);
    if (!load.requests.headers) die(load.options.requests_path, "its messages have no header");
    connect_all(&load);
    run(&load);
    print_report(&load.account);
    return 0;
}
