/* The table of requests that a generator sends in turn, as `requests.py` writes it.
 *
 *   u64 messages | u64 headers | u64 frames | u64 id_at | u64 size[messages][frames] | bytes of all frames, one after the other
 *
 * Each message has `frames` frames, of which the first `headers` get a request id (u64) of their own patched in at `id_at`: one for
 * an ordinary request, several for a packed message, none for what is not sent over ZeroMQ. */
#ifndef SLOTLINE_REQUESTS_H
#define SLOTLINE_REQUESTS_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids are patched in the host's byte order");

struct frame {
    uint8_t *bytes;
    uint64_t size;
};

struct requests {
    uint64_t messages, headers, frames, id_at;
    struct frame *table;
};

/* Return the whole file and its size. */
static uint8_t *read_file(const char *path, uint64_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) die(path, strerror(errno));
    *size = (uint64_t)ftell(file);
    uint8_t *bytes = malloc(*size + 1);
    if (!bytes) die(path, "out of memory");
    rewind(file);
    if (fread(bytes, 1, *size, file) != *size) die(path, "cannot be read");
    fclose(file);
    return bytes;
}

/* Cut `bytes` into the frames whose sizes stand before them. */
static void cut_frames(struct requests *requests, const char *path, uint8_t *bytes, uint64_t size)
{
    uint64_t count = requests->messages * requests->frames, at = 8 * (4 + count);
    requests->table = malloc(count * sizeof *requests->table);
    if (!requests->table || at > size) die(path, "no whole table of requests");
    for (uint64_t index = 0; index < count; index++) {
        struct frame *frame = &requests->table[index];
        memcpy(&frame->size, bytes + 8 * (4 + index), sizeof frame->size);
        frame->bytes = bytes + at;
        if (frame->size > size - at) die(path, "shorter than its frames");
        bool is_header = index % requests->frames < requests->headers;
        if (is_header && (frame->size < 8 || requests->id_at > frame->size - 8)) die(path, "a header has no room for its id");
        at += frame->size;
    }
}

static struct requests read_requests(const char *path)
{
    struct requests requests;
    uint64_t size, words[4];
    uint8_t *bytes = read_file(path, &size);
    if (size < sizeof words) die(path, "no table of requests");
    memcpy(words, bytes, sizeof words);
    requests = (struct requests){words[0], words[1], words[2], words[3], NULL};
    bool is_sound = requests.messages && requests.messages <= 1 << 20 && requests.frames && requests.frames <= 256;
    if (!is_sound || requests.headers > requests.frames) die(path, "no table of requests");
    cut_frames(&requests, path, bytes, size);
    return requests;
}

#endif
