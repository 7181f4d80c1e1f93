/* The command line of the load generators. */
#ifndef SLOTLINE_OPTIONS_H
#define SLOTLINE_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_CONNECTIONS = 1024, MAX_OUTSTANDING = 65536 };

struct options {
    const char *endpoint, *requests_path, *hello_path;
    bool is_echo; /* replies are the requests, else FlatBuffers messages */
    unsigned connections, outstanding;
    double rate;
    bool is_poisson;
    double seconds, warm_up_s, drain_s, window_s;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(2);
}

static double number(const char *name, const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(least <= value && value <= most)) {
        fprintf(stderr, "load: --%s %s: expected a number from %g to %g\n", name, text, least, most);
        exit(2);
    }
    return value;
}

static const char USAGE[] =
    "usage: load --endpoint E --requests FILE [--echo] [--hello FILE] [--connections N] [--outstanding W]\n"
    "            [--rate R [--poisson]] [--seconds S] [--warm-up S] [--drain S] [--window S]\n"
    "  --requests FILE  what is sent, in turn: see requests.h\n"
    "  --hello FILE     a message sent first by each connection; its answer is awaited\n"
    "  --echo           replies are the requests unchanged; without it they are Slotline messages\n"
    "  --outstanding W  closed loop: requests under way; open loop: at most so many (then they are sent late)\n"
    "  --rate R         open loop at R requests/s, evenly or (--poisson) at exponential distances\n"
    "  --window S       the measured time is also reported in windows of this length\n";

static const struct option OPTIONS[] = {
    {"endpoint", required_argument, NULL, 'e'}, {"requests", required_argument, NULL, 'f'},    {"hello", required_argument, NULL, 'h'},
    {"echo", no_argument, NULL, 'x'},           {"connections", required_argument, NULL, 'n'}, {"outstanding", required_argument, NULL, 'w'},
    {"rate", required_argument, NULL, 'r'},     {"poisson", no_argument, NULL, 'p'},           {"seconds", required_argument, NULL, 's'},
    {"warm-up", required_argument, NULL, 'u'},  {"drain", required_argument, NULL, 'd'},       {"window", required_argument, NULL, 'i'},
    {NULL, 0, NULL, 0},
};

static void take_option(struct options *options, int letter, const char *text)
{
    switch (letter) {
    case 'e': options->endpoint = text; break;
    case 'f': options->requests_path = text; break;
    case 'h': options->hello_path = text; break;
    case 'x': options->is_echo = true; break;
    case 'n': options->connections = (unsigned)number("connections", text, 1, MAX_CONNECTIONS); break;
    case 'w': options->outstanding = (unsigned)number("outstanding", text, 1, MAX_OUTSTANDING); break;
    case 'r': options->rate = number("rate", text, 0.001, 1e8); break;
    case 'p': options->is_poisson = true; break;
    case 's': options->seconds = number("seconds", text, 0.01, 86400); break;
    case 'u': options->warm_up_s = number("warm-up", text, 0, 3600); break;
    case 'd': options->drain_s = number("drain", text, 0, 3600); break;
    case 'i': options->window_s = number("window", text, 0.01, 3600); break;
    default: fputs(USAGE, stderr); exit(2);
    }
}

static struct options parse_options(int argc, char **argv)
{
    struct options options = {.connections = 1, .seconds = 3, .warm_up_s = 1, .drain_s = 5, .window_s = 0.5};
    int letter;
    while ((letter = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) take_option(&options, letter, optarg);
    if (!options.outstanding) options.outstanding = options.rate > 0 ? MAX_OUTSTANDING : 1;
    if (!options.endpoint || !options.requests_path || optind != argc) {
        fputs(USAGE, stderr);
        exit(2);
    }
    return options;
}

#endif
