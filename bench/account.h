/* The books of a generator: which requests are under way and since when, what came of them, and the report at the end.
 *
 * Counters are of the whole run (sent = ok + errors + lost); rates, latency, lateness, stage times and CPU only of the measured
 * time, which follows the warm-up. "measuring" and "measured" are printed when it begins and ends, so that whoever started the
 * generator can look at the server at these moments; then one line of JSON. */
#ifndef SLOTLINE_ACCOUNT_H
#define SLOTLINE_ACCOUNT_H

#include <inttypes.h>
#include <math.h>
#include <sys/resource.h>
#include <time.h>

#include "histogram.h"
#include "options.h"
#include "reply.h"

enum { MAX_CODE = 1024, MAX_WINDOWS = 4096, MAX_BATCH = 1024 };
static const int64_t ANSWERED = -1;
static const int64_t SECOND_NS = 1000000000;
static const int64_t SETTLE_NS = 50000000; /* after the last answer: time for a second one to show up */

struct window {
    uint64_t count, p50_ns;
};

struct stage_sums {
    uint64_t queue_us, run_us, batches[MAX_BATCH + 1]; /* the last takes all larger ones */
};

struct account {
    const struct options *options;
    int64_t *due_ns; /* of each request, ANSWERED afterwards; index = id - 1 */
    uint64_t due_capacity;
    uint64_t sent, answered, ok, errors, doubled, strange, errors_by_code[MAX_CODE];
    int64_t start_ns, measure_from_ns, measure_to_ns, next_due_ns, last_answer_ns;
    uint64_t measured, on_schedule, random_state;
    double late_sum_ns, late_max_ns, cpu_from_s, cpu_to_s;
    struct histogram latency, window_latency;
    struct window windows[MAX_WINDOWS];
    unsigned window_count, windows_done;
    uint64_t timed, backlog_us;
    unsigned stage_count;
    struct stage_sums stages[MAX_STAGES];
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

static void open_account(struct account *account, const struct options *options)
{
    account->options = options;
    account->random_state = 88172645463325252ULL;
    account->start_ns = account->next_due_ns = now_ns();
    account->measure_from_ns = account->start_ns + (int64_t)(options->warm_up_s * (double)SECOND_NS);
    account->measure_to_ns = account->measure_from_ns + (int64_t)(options->seconds * (double)SECOND_NS);
    double windows = options->seconds / options->window_s + 1e-9;
    account->window_count = windows < MAX_WINDOWS ? (unsigned)windows : MAX_WINDOWS;
    account->cpu_from_s = account->cpu_to_s = -1;
}

static bool is_measured(const struct account *account, int64_t at_ns)
{
    return account->measure_from_ns <= at_ns && at_ns < account->measure_to_ns;
}

static void announce(const char *what)
{
    puts(what);
    fflush(stdout);
}

/* Note the CPU and tell the parent when the measured time begins and ends. */
static void mark_phase(struct account *account, int64_t now)
{
    if (account->cpu_from_s < 0 && now >= account->measure_from_ns) {
        account->cpu_from_s = cpu_s();
        announce("measuring");
    }
    if (account->cpu_to_s < 0 && now >= account->measure_to_ns) {
        account->cpu_to_s = cpu_s();
        announce("measured");
    }
}

/* Move the schedule on by the distance between two due moments. */
static void schedule_next(struct account *account)
{
    double gap_ns = (double)SECOND_NS / account->options->rate;
    if (account->options->is_poisson) {
        account->random_state ^= account->random_state << 13;
        account->random_state ^= account->random_state >> 7;
        account->random_state ^= account->random_state << 17;
        double uniform = ((double)(account->random_state >> 11) + 0.5) / 9007199254740992.0;
        gap_ns *= -log(uniform);
    }
    account->next_due_ns += (int64_t)gap_ns;
}

/* Book a request that is sent now and was due at due_ns (negative: now); return its id. */
static uint64_t book_sent(struct account *account, int64_t due_ns, int64_t now)
{
    if (account->sent == account->due_capacity) {
        account->due_capacity = account->due_capacity ? 2 * account->due_capacity : 1 << 16;
        account->due_ns = realloc(account->due_ns, account->due_capacity * sizeof *account->due_ns);
        if (!account->due_ns) die("due times", "out of memory");
    }
    account->due_ns[account->sent] = due_ns < 0 ? now : due_ns;
    if (due_ns >= 0 && is_measured(account, due_ns)) {
        double late_ns = (double)(now - due_ns);
        account->on_schedule++;
        account->late_sum_ns += late_ns;
        if (late_ns > account->late_max_ns) account->late_max_ns = late_ns;
    }
    return ++account->sent;
}

/* Close the windows that ended before `at_ns`. */
static void close_windows(struct account *account, int64_t at_ns)
{
    int64_t window_ns = (int64_t)(account->options->window_s * (double)SECOND_NS);
    while (account->windows_done < account->window_count &&
           at_ns >= account->measure_from_ns + (int64_t)(account->windows_done + 1) * window_ns) {
        struct window *window = &account->windows[account->windows_done++];
        *window = (struct window){account->window_latency.total, percentile(&account->window_latency, 0.5)};
        memset(&account->window_latency, 0, sizeof account->window_latency);
    }
}

static void book_timing(struct account *account, const struct timing *timing)
{
    if (!timing->count) return;
    account->timed++;
    account->backlog_us += timing->backlog_us;
    account->stage_count = timing->count;
    for (unsigned index = 0; index < timing->count; index++) {
        const struct stage_time *row = &timing->rows[index];
        struct stage_sums *sums = &account->stages[index];
        sums->queue_us += row->queue_us;
        sums->run_us += row->run_us;
        sums->batches[row->batch < MAX_BATCH ? row->batch : MAX_BATCH]++;
    }
}

/* Book one reply: the first answer of a request that was sent, or one that should not be there. */
static void book_reply(struct account *account, const struct reply *reply, int64_t now)
{
    if (reply->outcome == STRANGE || reply->id == 0 || reply->id > account->sent) {
        account->strange++;
        return;
    }
    int64_t due_ns = account->due_ns[reply->id - 1];
    if (due_ns == ANSWERED) {
        account->doubled++;
        return;
    }
    account->due_ns[reply->id - 1] = ANSWERED;
    account->answered++;
    account->last_answer_ns = now;
    if (reply->outcome == FAILURE) {
        account->errors++;
        account->errors_by_code[reply->code < MAX_CODE ? reply->code : 0]++;
        return;
    }
    account->ok++;
    uint64_t latency_ns = now > due_ns ? (uint64_t)(now - due_ns) : 0;
    if (is_measured(account, now)) {
        close_windows(account, now);
        account->measured++;
        record(&account->window_latency, latency_ns);
        book_timing(account, &reply->timing);
    }
    if (is_measured(account, due_ns)) record(&account->latency, latency_ns);
}

/* Return when the loop must wake although no reply came; `has_room`: another request may be sent. */
static int64_t next_wake_ns(const struct account *account, int64_t now, bool has_room)
{
    if (now < account->measure_from_ns) now = account->measure_from_ns;
    else if (now < account->measure_to_ns) now = account->measure_to_ns;
    else return now + SETTLE_NS / 5;
    return has_room && account->options->rate > 0 && account->next_due_ns < now ? account->next_due_ns : now;
}

static bool is_finished(const struct account *account, int64_t now)
{
    if (now < account->measure_to_ns) return false;
    if (account->answered < account->sent) return now > account->measure_to_ns + (int64_t)(account->options->drain_s * (double)SECOND_NS);
    return now > account->last_answer_ns + SETTLE_NS;
}

static void print_counts(const char *name, const uint64_t *counts, unsigned size)
{
    printf(", \"%s\": {", name);
    const char *comma = "";
    for (unsigned index = 0; index < size; index++) {
        if (!counts[index]) continue;
        printf("%s\"%u\": %" PRIu64, comma, index, counts[index]);
        comma = ", ";
    }
    printf("}");
}

static void print_stages(const struct account *account)
{
    printf(", \"timed\": %" PRIu64 ", \"backlog_us\": %" PRIu64 ", \"stages\": [", account->timed, account->backlog_us);
    for (unsigned index = 0; index < account->stage_count; index++) {
        const struct stage_sums *sums = &account->stages[index];
        printf("%s{\"queue_us\": %" PRIu64 ", \"run_us\": %" PRIu64, index ? ", " : "", sums->queue_us, sums->run_us);
        print_counts("batches", sums->batches, MAX_BATCH + 1);
        printf("}");
    }
    printf("]");
}

static void print_windows(const struct account *account)
{
    printf(", \"windows\": [");
    for (unsigned index = 0; index < account->windows_done; index++) {
        const struct window *window = &account->windows[index];
        printf("%s{\"rate\": %.1f, \"p50_us\": %.1f}", index ? ", " : "", (double)window->count / account->options->window_s,
               (double)window->p50_ns / 1e3);
    }
    printf("]");
}

static void print_histogram(const struct histogram *histogram)
{
    printf(", \"max_ns\": %" PRIu64 ", \"histogram\": [", histogram->max);
    const char *comma = "";
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        if (!histogram->counts[bucket]) continue;
        printf("%s[%" PRIu64 ", %" PRIu64 "]", comma, bucket_top(bucket), histogram->counts[bucket]);
        comma = ", ";
    }
    printf("]");
}

static void print_report(struct account *account)
{
    close_windows(account, account->measure_to_ns);
    printf("{\"sent\": %" PRIu64 ", \"ok\": %" PRIu64 ", \"errors\": %" PRIu64 ", \"lost\": %" PRIu64, account->sent, account->ok,
           account->errors, account->sent - account->answered);
    printf(", \"doubled\": %" PRIu64 ", \"strange\": %" PRIu64, account->doubled, account->strange);
    print_counts("errors_by_code", account->errors_by_code, MAX_CODE);
    printf(", \"seconds\": %.3f, \"rate\": %.2f", account->options->seconds, (double)account->measured / account->options->seconds);
    printf(", \"client_cpu_s\": %.4f, \"late_us\": %.1f, \"late_max_us\": %.1f", account->cpu_to_s - account->cpu_from_s,
           account->on_schedule ? account->late_sum_ns / (double)account->on_schedule / 1e3 : 0.0, account->late_max_ns / 1e3);
    print_stages(account);
    print_windows(account);
    print_histogram(&account->latency);
    printf("}\n");
}

#endif
