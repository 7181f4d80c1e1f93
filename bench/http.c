/* http: the load generator for servers that speak HTTP/1.1, with the books and the report of `load`.
 *
 *   http --endpoint http://127.0.0.1:PORT --requests FILE [...]      options as those of `load`
 *
 * Whole requests, head and body, come from the table and are sent as they are. Each of the --outstanding connections is kept alive and
 * carries one request at a time; a status other than 200 is an error with that code, a connection that breaks one with code 0. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "account.h"
#include "requests.h"

enum { READ_BYTES = 1 << 16, EVENTS = 64 };

struct connection {
    int descriptor;
    bool waits_to_send;
    uint64_t id; /* of the request under way, 0 = idle */
    const struct frame *request;
    size_t sent, got, capacity, wanted; /* wanted: bytes of the whole answer once its head is there, else 0 */
    char *answer;
};

struct load {
    struct options options;
    struct requests requests;
    struct account account;
    struct sockaddr_in address;
    int epoll, timer;
    struct connection connections[MAX_CONNECTIONS];
    struct connection *idle[MAX_CONNECTIONS];
    unsigned idle_count;
};

static void watch(struct load *load, struct connection *connection, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | (connection->waits_to_send ? EPOLLOUT : 0), .data.ptr = connection};
    if (epoll_ctl(load->epoll, operation, connection->descriptor, &event)) die("epoll", strerror(errno));
}

static void open_connection(struct load *load, struct connection *connection)
{
    int yes = 1;
    connection->descriptor = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection->descriptor, (struct sockaddr *)&load->address, sizeof load->address)) die(load->options.endpoint, strerror(errno));
    setsockopt(connection->descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(connection->descriptor, F_SETFL, O_NONBLOCK);
    connection->waits_to_send = false;
    watch(load, connection, EPOLL_CTL_ADD);
}

/* End the request under way, if there is one, and make the connection idle. */
static void finish(struct load *load, struct connection *connection, unsigned status)
{
    struct reply reply = {.outcome = status == 200 ? RESULT : FAILURE, .id = connection->id, .code = status};
    if (connection->id) {
        book_reply(&load->account, &reply, now_ns());
        load->idle[load->idle_count++] = connection;
    }
    connection->id = 0;
    connection->got = connection->wanted = 0;
}

/* Replace a connection that has ended. */
static void reopen(struct load *load, struct connection *connection)
{
    close(connection->descriptor);
    open_connection(load, connection);
    finish(load, connection, 0);
}

static void send_rest(struct load *load, struct connection *connection)
{
    const struct frame *request = connection->request;
    while (connection->sent < request->size) {
        ssize_t sent = send(connection->descriptor, request->bytes + connection->sent, request->size - connection->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return; /* the end is read by and by */
        if (sent < 0) break;
        connection->sent += (size_t)sent;
    }
    bool waits = connection->sent < request->size;
    if (waits == connection->waits_to_send) return;
    connection->waits_to_send = waits;
    watch(load, connection, EPOLL_CTL_MOD);
}

static void send_request(struct load *load, int64_t due_ns)
{
    struct connection *connection = load->idle[--load->idle_count];
    connection->request = &load->requests.table[load->account.sent % load->requests.messages];
    connection->sent = 0;
    connection->id = book_sent(&load->account, due_ns, now_ns());
    send_rest(load, connection);
}

static void send_due(struct load *load, int64_t now)
{
    struct account *account = &load->account;
    while (load->idle_count) {
        if (load->options.rate > 0 && account->next_due_ns > now) return;
        send_request(load, load->options.rate > 0 ? account->next_due_ns : -1);
        if (load->options.rate > 0) schedule_next(account);
    }
}

/* Return what follows the header `name` in the head, NULL without it. */
static const char *header_value(const char *head, const char *end, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = head; line && line + length < end; line = memchr(line, '\n', (size_t)(end - line))) {
        if (*line == '\n') line++;
        if (line + length < end && !strncasecmp(line, name, length)) return line + length;
    }
    return NULL;
}

/* Once the head is there, set how long the whole answer is. */
static void read_head(struct connection *connection)
{
    const char *end = memmem(connection->answer, connection->got, "\r\n\r\n", 4);
    if (!end) return;
    const char *length = header_value(connection->answer, end, "content-length:");
    if (!length) die("answer", "it has no Content-Length");
    connection->wanted = (size_t)(end - connection->answer) + 4 + strtoul(length, NULL, 10);
}

static unsigned read_status(const struct connection *connection)
{
    return connection->got > 12 && !memcmp(connection->answer, "HTTP/1.", 7) ? (unsigned)atoi(connection->answer + 9) : 0;
}

/* Take what has come. */
static void receive(struct load *load, struct connection *connection)
{
    for (;;) {
        if (connection->capacity - connection->got < READ_BYTES) {
            connection->capacity = 2 * connection->capacity + READ_BYTES;
            connection->answer = realloc(connection->answer, connection->capacity + 1);
            if (!connection->answer) die("answer", "out of memory");
        }
        ssize_t got = recv(connection->descriptor, connection->answer + connection->got, READ_BYTES, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got <= 0) {
            reopen(load, connection);
            return;
        }
        connection->got += (size_t)got;
        connection->answer[connection->got] = 0;
        if (!connection->id) {
            load->account.strange++;
            connection->got = 0;
            continue;
        }
        if (!connection->wanted) read_head(connection);
        if (connection->wanted && connection->got >= connection->wanted) {
            finish(load, connection, read_status(connection));
            return;
        }
    }
}

/* Sleep until something can be received or sent, or wake_ns has come; the timer knows nanoseconds, epoll_wait only milliseconds. */
static void wait_for_events(struct load *load, int64_t wake_ns)
{
    struct epoll_event events[EVENTS];
    struct itimerspec when = {.it_value = {wake_ns / SECOND_NS, wake_ns % SECOND_NS}};
    timerfd_settime(load->timer, TFD_TIMER_ABSTIME, &when, NULL);
    int count = epoll_wait(load->epoll, events, EVENTS, -1);
    for (int index = 0; index < count; index++) {
        struct connection *connection = events[index].data.ptr;
        if (!connection) continue; /* the timer */
        if (events[index].events & EPOLLOUT) send_rest(load, connection);
        if (events[index].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(load, connection);
    }
}

static void run(struct load *load)
{
    struct account *account = &load->account;
    open_account(account, &load->options);
    for (int64_t now = account->start_ns; !is_finished(account, now); now = now_ns()) {
        mark_phase(account, now);
        if (now < account->measure_to_ns) send_due(load, now);
        wait_for_events(load, next_wake_ns(account, now, load->idle_count > 0));
    }
}

static void connect_all(struct load *load)
{
    unsigned port;
    char host[64];
    if (sscanf(load->options.endpoint, "http://%63[0-9.]:%u", host, &port) != 2) die(load->options.endpoint, "expected http://ADDRESS:PORT");
    load->address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &load->address.sin_addr) != 1) die(load->options.endpoint, "no IPv4 address");
    load->epoll = epoll_create1(0);
    load->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    epoll_ctl(load->epoll, EPOLL_CTL_ADD, load->timer, &event);
    unsigned count = load->options.outstanding < MAX_CONNECTIONS ? load->options.outstanding : MAX_CONNECTIONS;
    for (unsigned index = 0; index < count; index++) {
        open_connection(load, &load->connections[index]);
        load->idle[load->idle_count++] = &load->connections[index];
    }
}

int main(int argc, char **argv)
{
    static struct load load;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1UL);
    load.options = parse_options(argc, argv);
    load.requests = read_requests(load.options.requests_path);
    if (load.requests.frames != 1) die(load.options.requests_path, "an HTTP request is one frame");
    connect_all(&load);
    run(&load);
    print_report(&load.account);
    return 0;
}
