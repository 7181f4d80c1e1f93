/* load: one load generator for every server of the benchmark, on libzmq.
 *
 * Each request is one frame, taken in turn from a table of prebuilt headers, with a request id of its own patched in. Each id
 * must be answered exactly once; what is lost, doubled, an error or not understood is counted. Two ways to send:
 *
 *   closed loop   (no --rate)  --outstanding requests are under way at any time; a request is due when it is sent
 *   open loop     (--rate)     requests are due at fixed or exponential distances, whatever the server does; latency runs from the
 *                              moment a request was due, so a stall is charged to all requests that it delayed
 *
 * One thread owns the sockets; it sleeps when there is nothing to do. Prints one line of JSON. Counters are of the whole run
 * (sent = ok + errors + lost); rate, latency, lateness and CPU only of the --seconds after the --warm-up. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <zmq.h>

#include "histogram.h"
#include "options.h"
#include "reply.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids are patched in the host's byte order");

enum { MAX_CODE = 1024 };
enum { BURST = 64 }; /* replies taken before the schedule is looked at again */
static const int64_t ANSWERED = -1;
static const int64_t SECOND_NS = 1000000000;
static const int64_t SETTLE_NS = 50000000; /* after the last answer: time for a second one to show up */

struct load {
    struct options options;
    void *sockets[MAX_SOCKETS];
    struct pollfd fds[MAX_SOCKETS];
    uint8_t *headers;
    int64_t *due_ns; /* of each request, ANSWERED afterwards; index = id - 1 */
    uint64_t due_capacity;
    uint64_t sent, answered, ok, errors, doubled, strange, errors_by_code[MAX_CODE];
    int64_t measure_from_ns, measure_to_ns, next_due_ns, last_answer_ns;
    uint64_t measured, on_schedule, random_state;
    double late_sum_ns, late_max_ns, cpu_from_s, cpu_to_s;
    struct histogram latency;
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static bool is_measured(const struct load *load, int64_t at_ns)
{
    return load->measure_from_ns <= at_ns && at_ns < load->measure_to_ns;
}

/* Return the nanoseconds from one due moment to the next. */
static int64_t next_gap_ns(struct load *load)
{
    double mean_ns = (double)SECOND_NS / load->options.rate;
    if (!load->options.is_poisson) return (int64_t)mean_ns;
    load->random_state ^= load->random_state << 13;
    load->random_state ^= load->random_state >> 7;
    load->random_state ^= load->random_state << 17;
    double uniform = ((double)(load->random_state >> 11) + 0.5) / 9007199254740992.0;
    return (int64_t)(-log(uniform) * mean_ns);
}

static void remember_due(struct load *load, int64_t due_ns)
{
    if (load->sent == load->due_capacity) {
        load->due_capacity = load->due_capacity ? 2 * load->due_capacity : 1 << 16;
        load->due_ns = realloc(load->due_ns, load->due_capacity * sizeof *load->due_ns);
        if (!load->due_ns) die("due times", "out of memory");
    }
    load->due_ns[load->sent] = due_ns;
}

/* Send the next request; a negative due_ns means that it is due now. */
static void send_request(struct load *load, int64_t due_ns)
{
    const struct options *options = &load->options;
    int64_t now = now_ns();
    remember_due(load, due_ns < 0 ? now : due_ns);
    if (due_ns >= 0 && is_measured(load, due_ns)) {
        double late_ns = (double)(now - due_ns);
        load->on_schedule++;
        load->late_sum_ns += late_ns;
        if (late_ns > load->late_max_ns) load->late_max_ns = late_ns;
    }
    uint8_t *header = load->headers + (load->sent % options->header_count) * options->header_bytes;
    void *socket = load->sockets[load->sent % options->sockets];
    uint64_t id = ++load->sent;
    memcpy(header + options->id_at, &id, sizeof id);
    if (zmq_send(socket, header, options->header_bytes, ZMQ_DONTWAIT) < 0) die("send", zmq_strerror(zmq_errno()));
}

/* Send whatever is due at now_ns, while fewer than --outstanding requests are under way. */
static void send_due(struct load *load, int64_t now)
{
    bool is_open = load->options.rate > 0;
    while (load->sent - load->answered < load->options.outstanding) {
        if (!is_open) {
            send_request(load, -1);
            continue;
        }
        if (load->next_due_ns > now) return;
        send_request(load, load->next_due_ns);
        load->next_due_ns += next_gap_ns(load);
    }
}

/* Book one reply: the first answer of a request that was sent, or one that should not be there. */
static void account(struct load *load, struct reply reply, int64_t now)
{
    if (reply.outcome == STRANGE || reply.id == 0 || reply.id > load->sent) {
        load->strange++;
        return;
    }
    int64_t due_ns = load->due_ns[reply.id - 1];
    if (due_ns == ANSWERED) {
        load->doubled++;
        return;
    }
    load->due_ns[reply.id - 1] = ANSWERED;
    load->answered++;
    load->last_answer_ns = now;
    if (reply.outcome == FAILURE) {
        load->errors++;
        load->errors_by_code[reply.code < MAX_CODE ? reply.code : 0]++;
        return;
    }
    load->ok++;
    load->measured += is_measured(load, now);
    if (is_measured(load, due_ns)) record(&load->latency, now > due_ns ? (uint64_t)(now - due_ns) : 0);
}

/* Take one reply, all frames of it; false when there is none. */
static bool receive_reply(struct load *load, void *socket)
{
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0) {
        if (zmq_errno() != EAGAIN && zmq_errno() != EINTR) die("receive", zmq_strerror(zmq_errno()));
        return false;
    }
    const uint8_t *header = zmq_msg_data(&frame);
    size_t size = zmq_msg_size(&frame);
    account(load, load->options.is_echo ? read_echo(header, size, load->options.id_at) : read_message(header, size), now_ns());
    while (zmq_msg_more(&frame)) zmq_msg_recv(&frame, socket, 0);
    zmq_msg_close(&frame);
    return true;
}

static void receive_burst(struct load *load)
{
    for (unsigned index = 0; index < load->options.sockets; index++)
        for (unsigned taken = 0; taken < BURST && receive_reply(load, load->sockets[index]); taken++) continue;
}

/* Sleep until a reply is there or wake_ns has come. */
static void wait_for_reply(struct load *load, int64_t wake_ns)
{
    /* The descriptor of a ZeroMQ socket signals changes only: it may be slept on only after ZMQ_EVENTS said that nothing is there. */
    for (unsigned index = 0; index < load->options.sockets; index++) {
        int events;
        size_t size = sizeof events;
        if (zmq_getsockopt(load->sockets[index], ZMQ_EVENTS, &events, &size)) die("events", zmq_strerror(zmq_errno()));
        if (events & ZMQ_POLLIN) return;
    }
    int64_t left_ns = wake_ns - now_ns();
    if (left_ns <= 0) return;
    struct timespec timeout = {left_ns / SECOND_NS, left_ns % SECOND_NS};
    /* ppoll, since zmq_poll knows only milliseconds. */
    ppoll(load->fds, load->options.sockets, &timeout, NULL);
}

/* Return when the loop must wake although no reply came. */
static int64_t next_wake_ns(const struct load *load, int64_t now)
{
    if (now < load->measure_from_ns) now = load->measure_from_ns;
    else if (now < load->measure_to_ns) now = load->measure_to_ns;
    else return now + SETTLE_NS / 5;
    bool has_schedule = load->options.rate > 0 && load->sent - load->answered < load->options.outstanding;
    return has_schedule && load->next_due_ns < now ? load->next_due_ns : now;
}

static bool is_finished(const struct load *load, int64_t now)
{
    if (now < load->measure_to_ns) return false;
    if (load->answered < load->sent) return now > load->measure_to_ns + (int64_t)(load->options.drain_s * (double)SECOND_NS);
    return now > load->last_answer_ns + SETTLE_NS;
}

static void run(struct load *load)
{
    int64_t start = now_ns();
    load->next_due_ns = start;
    load->measure_from_ns = start + (int64_t)(load->options.warm_up_s * (double)SECOND_NS);
    load->measure_to_ns = load->measure_from_ns + (int64_t)(load->options.seconds * (double)SECOND_NS);
    load->cpu_from_s = load->cpu_to_s = -1;
    for (int64_t now = start; !is_finished(load, now); now = now_ns()) {
        if (load->cpu_from_s < 0 && now >= load->measure_from_ns) load->cpu_from_s = cpu_s();
        if (load->cpu_to_s < 0 && now >= load->measure_to_ns) load->cpu_to_s = cpu_s();
        receive_burst(load);
        if (now < load->measure_to_ns) send_due(load, now);
        wait_for_reply(load, next_wake_ns(load, now));
    }
}

static void connect_all(struct load *load)
{
    void *context = zmq_ctx_new();
    int unlimited = 0, linger_ms = 0;
    for (unsigned index = 0; index < load->options.sockets; index++) {
        void *socket = load->sockets[index] = zmq_socket(context, ZMQ_DEALER);
        size_t size = sizeof load->fds[index].fd;
        zmq_setsockopt(socket, ZMQ_SNDHWM, &unlimited, sizeof unlimited);
        zmq_setsockopt(socket, ZMQ_RCVHWM, &unlimited, sizeof unlimited);
        zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
        if (zmq_connect(socket, load->options.endpoint)) die(load->options.endpoint, zmq_strerror(zmq_errno()));
        zmq_getsockopt(socket, ZMQ_FD, &load->fds[index].fd, &size);
        load->fds[index].events = POLLIN;
    }
}

static void read_headers(struct load *load)
{
    const struct options *options = &load->options;
    FILE *file = fopen(options->header_path, "rb");
    if (!file) die(options->header_path, strerror(errno));
    load->headers = malloc(options->header_count * options->header_bytes);
    if (!load->headers) die(options->header_path, "out of memory");
    size_t got = fread(load->headers, options->header_bytes, options->header_count, file);
    if (got != options->header_count) die(options->header_path, "shorter than --count times --size");
    fclose(file);
}

static void print_report(const struct load *load)
{
    const struct histogram *latency = &load->latency;
    printf("{\"sent\": %" PRIu64 ", \"ok\": %" PRIu64 ", \"errors\": %" PRIu64 ", \"lost\": %" PRIu64, load->sent, load->ok, load->errors,
           load->sent - load->answered);
    printf(", \"doubled\": %" PRIu64 ", \"strange\": %" PRIu64 ", \"errors_by_code\": {", load->doubled, load->strange);
    const char *comma = "";
    for (unsigned code = 0; code < MAX_CODE; code++) {
        if (!load->errors_by_code[code]) continue;
        printf("%s\"%u\": %" PRIu64, comma, code, load->errors_by_code[code]);
        comma = ", ";
    }
    printf("}, \"seconds\": %.3f, \"rate\": %.1f", load->options.seconds, (double)load->measured / load->options.seconds);
    printf(", \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f", (double)percentile(latency, 0.5) / 1e3,
           (double)percentile(latency, 0.9) / 1e3, (double)percentile(latency, 0.99) / 1e3, (double)latency->max / 1e3);
    printf(", \"samples\": %" PRIu64 ", \"client_cpu_s\": %.3f, \"late_us\": %.1f, \"late_max_us\": %.1f}\n", latency->total,
           load->cpu_to_s - load->cpu_from_s, load->on_schedule ? load->late_sum_ns / (double)load->on_schedule / 1e3 : 0.0,
           load->late_max_ns / 1e3);
}

int main(int argc, char **argv)
{
    static struct load load;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1UL); /* the default of 50 us would make every open-loop request late */
    load.options = parse_options(argc, argv);
    load.random_state = 88172645463325252ULL;
    read_headers(&load);
    connect_all(&load);
    run(&load);
    print_report(&load);
    return 0;
}
