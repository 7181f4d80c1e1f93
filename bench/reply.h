/* What the generator reads of a reply: its request id, whether it is a result, an error or neither, and the times of its stages.
 * Every offset is checked. */
#ifndef SLOTLINE_REPLY_H
#define SLOTLINE_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum outcome { STRANGE, RESULT, FAILURE };

enum { MAX_STAGES = 8 };

struct stage_time {
    uint32_t queue_us, run_us, batch;
};

struct timing {
    unsigned count; /* 0: the reply has no times */
    uint32_t backlog_us;
    struct stage_time rows[MAX_STAGES];
};

struct reply {
    enum outcome outcome;
    uint64_t id;
    unsigned code;        /* of a FAILURE */
    bool is_packed;       /* more frames follow, each a reply */
    struct timing timing; /* of a RESULT */
};

/* infer.fbs: Message.route is field 0, Message.body field 4; Route is 56 bytes, request_id at 0, flags at 40, kind at 46; Failure.code
 * is field 0; InferOut.timing is field 4, InferOut.backlog_us field 6. */
enum { FIELD_ROUTE = 0, FIELD_BODY = 4, FIELD_CODE = 0, FIELD_TIMING = 4, FIELD_BACKLOG = 6 };
enum { ROUTE_BYTES = 56, FLAGS_AT = 40, FLAG_PACKED = 8, KIND_AT = 46, KIND_INFER_REPLY = 16, KIND_ERROR = 18 };

static inline bool read_bytes(const uint8_t *buffer, size_t size, size_t at, void *value, size_t width)
{
    if (at > size || size - at < width) return false;
    memcpy(value, buffer + at, width);
    return true;
}

/* Follow the u32 offset at `at`; SIZE_MAX when it is out of bounds. */
static inline size_t follow(const uint8_t *buffer, size_t size, size_t at)
{
    uint32_t offset;
    return read_bytes(buffer, size, at, &offset, sizeof offset) ? at + offset : SIZE_MAX;
}

/* Return where field `id` of the table at `table` lies; SIZE_MAX when it is absent or out of bounds. */
static inline size_t field_at(const uint8_t *buffer, size_t size, size_t table, unsigned id)
{
    int32_t back;
    uint16_t vtable_bytes, offset;
    if (!read_bytes(buffer, size, table, &back, sizeof back)) return SIZE_MAX;
    size_t vtable = table - (size_t)(ptrdiff_t)back;
    if (!read_bytes(buffer, size, vtable, &vtable_bytes, sizeof vtable_bytes)) return SIZE_MAX;
    size_t entry = 4 + 2 * (size_t)id;
    if (entry + 2 > vtable_bytes || !read_bytes(buffer, size, vtable + entry, &offset, sizeof offset)) return SIZE_MAX;
    return offset ? table + offset : SIZE_MAX;
}

/* Return the code in the Failure body of the message at `root`; 0 when there is none. */
static inline unsigned failure_code(const uint8_t *buffer, size_t size, size_t root)
{
    uint16_t code = 0;
    size_t body = follow(buffer, size, field_at(buffer, size, root, FIELD_BODY));
    read_bytes(buffer, size, field_at(buffer, size, body, FIELD_CODE), &code, sizeof code);
    return code;
}

/* Read the times of a result's stages; those beyond MAX_STAGES are left out. */
static inline void read_timing(const uint8_t *buffer, size_t size, size_t root, struct timing *timing)
{
    size_t body = follow(buffer, size, field_at(buffer, size, root, FIELD_BODY));
    size_t rows = follow(buffer, size, field_at(buffer, size, body, FIELD_TIMING));
    uint32_t count;
    if (!read_bytes(buffer, size, rows, &count, sizeof count)) return;
    if (count > MAX_STAGES) count = MAX_STAGES;
    if (!read_bytes(buffer, size, rows + sizeof count, timing->rows, count * sizeof *timing->rows)) return;
    timing->count = count;
    read_bytes(buffer, size, field_at(buffer, size, body, FIELD_BACKLOG), &timing->backlog_us, sizeof timing->backlog_us);
}

/* Read a FlatBuffers Message by its route. */
static inline struct reply read_message(const uint8_t *buffer, size_t size)
{
    struct reply reply = {.outcome = STRANGE};
    size_t root = follow(buffer, size, 0);
    size_t route = field_at(buffer, size, root, FIELD_ROUTE);
    if (route > size || size - route < ROUTE_BYTES) return reply;
    memcpy(&reply.id, buffer + route, sizeof reply.id);
    reply.is_packed = buffer[route + FLAGS_AT] & FLAG_PACKED;
    if (buffer[route + KIND_AT] == KIND_INFER_REPLY) {
        reply.outcome = RESULT;
        read_timing(buffer, size, root, &reply.timing);
    }
    if (buffer[route + KIND_AT] != KIND_ERROR) return reply;
    reply.outcome = FAILURE;
    reply.code = failure_code(buffer, size, root);
    return reply;
}

/* Read an echoed request: the id at a fixed offset, whatever the rest is. */
static inline struct reply read_echo(const uint8_t *buffer, size_t size, size_t id_at)
{
    struct reply reply = {.outcome = STRANGE};
    if (read_bytes(buffer, size, id_at, &reply.id, sizeof reply.id)) reply.outcome = RESULT;
    return reply;
}

#endif
