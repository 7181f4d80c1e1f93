/* The command line of the load generator. */
#ifndef SLOTLINE_OPTIONS_H
#define SLOTLINE_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_SOCKETS = 256, MAX_OUTSTANDING = 65536 };

struct options {
    const char *endpoint, *header_path;
    size_t header_count, header_bytes, id_at;
    bool is_echo; /* replies are the requests, else FlatBuffers messages */
    unsigned sockets, outstanding;
    double rate;
    bool is_poisson;
    double seconds, warm_up_s, drain_s;
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
    "usage: load --endpoint E --header FILE --size BYTES [--count K] --id-at OFFSET [--echo] [--sockets N]\n"
    "            [--outstanding W] [--rate R [--poisson]] [--seconds S] [--warm-up S] [--drain S]\n"
    "  --header FILE    K headers of BYTES each, sent in turn with the request id (u64) patched at OFFSET\n"
    "  --echo           replies are the requests unchanged; without it they are Slotline messages\n"
    "  --outstanding W  closed loop: requests under way; open loop: at most so many (then they are sent late)\n"
    "  --rate R         open loop at R requests/s, evenly or (--poisson) at exponential distances\n";

static const struct option OPTIONS[] = {
    {"endpoint", required_argument, NULL, 'e'}, {"header", required_argument, NULL, 'f'},      {"count", required_argument, NULL, 'k'},
    {"size", required_argument, NULL, 'b'},     {"id-at", required_argument, NULL, 'i'},       {"echo", no_argument, NULL, 'x'},
    {"sockets", required_argument, NULL, 'n'},  {"outstanding", required_argument, NULL, 'w'}, {"rate", required_argument, NULL, 'r'},
    {"poisson", no_argument, NULL, 'p'},        {"seconds", required_argument, NULL, 's'},     {"warm-up", required_argument, NULL, 'u'},
    {"drain", required_argument, NULL, 'd'},    {NULL, 0, NULL, 0},
};

static void take_option(struct options *options, int letter, const char *text)
{
    switch (letter) {
    case 'e': options->endpoint = text; break;
    case 'f': options->header_path = text; break;
    case 'k': options->header_count = (size_t)number("count", text, 1, 1e6); break;
    case 'b': options->header_bytes = (size_t)number("size", text, 8, 65536); break;
    case 'i': options->id_at = (size_t)number("id-at", text, 0, 65528); break;
    case 'x': options->is_echo = true; break;
    case 'n': options->sockets = (unsigned)number("sockets", text, 1, MAX_SOCKETS); break;
    case 'w': options->outstanding = (unsigned)number("outstanding", text, 1, MAX_OUTSTANDING); break;
    case 'r': options->rate = number("rate", text, 0.001, 1e8); break;
    case 'p': options->is_poisson = true; break;
    case 's': options->seconds = number("seconds", text, 0.01, 86400); break;
    case 'u': options->warm_up_s = number("warm-up", text, 0, 3600); break;
    case 'd': options->drain_s = number("drain", text, 0, 3600); break;
    default: fputs(USAGE, stderr); exit(2);
    }
}

static struct options parse_options(int argc, char **argv)
{
    struct options options = {.header_count = 1, .sockets = 1, .seconds = 3, .warm_up_s = 1, .drain_s = 5};
    int letter;
    while ((letter = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) take_option(&options, letter, optarg);
    if (!options.outstanding) options.outstanding = options.rate > 0 ? MAX_OUTSTANDING : 1;
    bool is_whole = options.endpoint && options.header_path && options.header_bytes && optind == argc;
    if (!is_whole || options.id_at + 8 > options.header_bytes) {
        fputs(USAGE, stderr);
        exit(2);
    }
    return options;
}

#endif
