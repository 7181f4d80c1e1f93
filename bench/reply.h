/* What the generator reads of a reply: its request id, and whether it is a result, an error or neither. Every offset is checked. */
#ifndef SLOTLINE_REPLY_H
#define SLOTLINE_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum outcome { STRANGE, RESULT, FAILURE };

struct reply {
    enum outcome outcome;
    uint64_t id;
    unsigned code; /* of a FAILURE */
};

/* infer.fbs: Message.route is field 0, Message.body field 4; Route is 56 bytes, request_id at 0, kind at 46; Failure.code is field 0. */
enum { FIELD_ROUTE = 0, FIELD_BODY = 4, FIELD_CODE = 0, ROUTE_BYTES = 56, KIND_AT = 46, KIND_INFER_REPLY = 16, KIND_ERROR = 18 };

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

/* Read a FlatBuffers Message by its route. */
static inline struct reply read_message(const uint8_t *buffer, size_t size)
{
    struct reply reply = {STRANGE, 0, 0};
    size_t root = follow(buffer, size, 0);
    size_t route = field_at(buffer, size, root, FIELD_ROUTE);
    if (route > size || size - route < ROUTE_BYTES) return reply;
    memcpy(&reply.id, buffer + route, sizeof reply.id);
    if (buffer[route + KIND_AT] == KIND_INFER_REPLY) reply.outcome = RESULT;
    if (buffer[route + KIND_AT] != KIND_ERROR) return reply;
    reply.outcome = FAILURE;
    reply.code = failure_code(buffer, size, root);
    return reply;
}

/* Read an echoed request: the id at a fixed offset, whatever the rest is. */
static inline struct reply read_echo(const uint8_t *buffer, size_t size, size_t id_at)
{
    struct reply reply = {STRANGE, 0, 0};
    if (read_bytes(buffer, size, id_at, &reply.id, sizeof reply.id)) reply.outcome = RESULT;
    return reply;
}

#endif
