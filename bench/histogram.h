/* A log-linear histogram of nanoseconds: three significant digits from 1 ns to 18 minutes, fixed memory, no sorting. */
#ifndef SLOTLINE_HISTOGRAM_H
#define SLOTLINE_HISTOGRAM_H

#include <stdint.h>

/* Values below 2 * STEPS have a bucket each; every doubling above is cut into STEPS buckets, so a bucket is at most 1/1024 wide. */
enum { STEP_BITS = 10, STEPS = 1 << STEP_BITS, VALUE_BITS = 40, BUCKETS = (VALUE_BITS - STEP_BITS + 1) * STEPS };

struct histogram {
    uint64_t counts[BUCKETS];
    uint64_t total;
    uint64_t max;
};

static inline unsigned bucket_of(uint64_t value)
{
    if (value < 2 * STEPS) return (unsigned)value;
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - STEP_BITS;
    return shift * STEPS + (unsigned)(value >> shift);
}

/* The largest value that falls into the bucket: a percentile is never reported smaller than it was. */
static inline uint64_t bucket_top(unsigned bucket)
{
    if (bucket < 2 * STEPS) return bucket;
    unsigned shift = bucket / STEPS - 1;
    uint64_t step = bucket % STEPS + STEPS;
    return ((step + 1) << shift) - 1;
}

static inline void record(struct histogram *histogram, uint64_t value)
{
    uint64_t largest = (1ULL << VALUE_BITS) - 1;
    if (value > largest) value = largest;
    histogram->counts[bucket_of(value)]++;
    histogram->total++;
    if (value > histogram->max) histogram->max = value;
}

/* Return the smallest bucket top that at least `share` of the values do not exceed; 0 when there are none. */
static inline uint64_t percentile(const struct histogram *histogram, double share)
{
    double wanted = share * (double)histogram->total;
    uint64_t seen = 0;
    for (unsigned bucket = 0; bucket < BUCKETS && histogram->total; bucket++) {
        seen += histogram->counts[bucket];
        if (seen && (double)seen >= wanted) return bucket_top(bucket) < histogram->max ? bucket_top(bucket) : histogram->max;
    }
    return histogram->max;
}

#endif
