/* The accelerator: the broker's work per message in C. Optional; the Python beside each use does the same and is its oracle.
 *
 *   link(path)                              find libzmq, the very library that pyzmq has loaded
 *   receive(socket, clients, limit)         take messages off a ROUTER
 *   send(socket, messages, start)           give one-frame messages to a ROUTER
 *   join(spans, header)                     the bytes of a header that decide its layout
 *   replies(form, requests)                 the headers of finished requests, from their slots
 *
 * Nothing here decides anything: no limit, no state, no error text. Every offset is checked against the buffer it goes into; those
 * that are wrong raise, and the Python side falls back or ends. All calls are the broker's main thread's, and none waits.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

/* From zmq.h, part of its ABI: the size of zmq_msg_t and two flags. */
typedef struct { _Alignas(8) unsigned char opaque[64]; } message_t;
enum { ZMQ_DONTWAIT_FLAG = 1, ZMQ_SNDMORE_FLAG = 2 };

static struct {
    int (*msg_init)(message_t *);
    int (*msg_recv)(message_t *, void *, int);
    int (*msg_close)(message_t *);
    void *(*msg_data)(message_t *);
    size_t (*msg_size)(const message_t *);
    int (*msg_more)(const message_t *);
    int (*send)(void *, const void *, size_t, int);
    int (*error)(void);
} zmq;

static PyObject *hot_link(PyObject *self, PyObject *path_object) {
    const char *path = PyUnicode_AsUTF8(path_object);
    if (path == NULL) return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) return PyErr_Format(PyExc_OSError, "%s is not loaded", path);
    struct { const char *name; void **place; } symbols[] = {
        {"zmq_msg_init", (void **)&zmq.msg_init}, {"zmq_msg_recv", (void **)&zmq.msg_recv},
        {"zmq_msg_close", (void **)&zmq.msg_close}, {"zmq_msg_data", (void **)&zmq.msg_data},
        {"zmq_msg_size", (void **)&zmq.msg_size}, {"zmq_msg_more", (void **)&zmq.msg_more},
        {"zmq_send", (void **)&zmq.send}, {"zmq_errno", (void **)&zmq.error},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        *symbols[i].place = dlsym(library, symbols[i].name);
        if (*symbols[i].place == NULL) return PyErr_Format(PyExc_OSError, "%s has no %s", path, symbols[i].name);
    }
    Py_RETURN_NONE;
}

/* --- receiving ----------------------------------------------------------------------------------------------------------- */

/* Take one part. Return its bytes and whether more follow; NULL without an exception when there is none. */
static PyObject *take_part(void *socket, int *more) {
    message_t part;
    zmq.msg_init(&part);
    while (zmq.msg_recv(&part, socket, ZMQ_DONTWAIT_FLAG) < 0) {
        int error = zmq.error();
        if (error == EINTR) continue;
        zmq.msg_close(&part);
        if (error != EAGAIN) PyErr_SetFromErrno(PyExc_OSError);
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(zmq.msg_data(&part), (Py_ssize_t)zmq.msg_size(&part));
    *more = zmq.msg_more(&part);
    zmq.msg_close(&part);
    return bytes;
}

enum { HAS_DELIMITER = 1, HAS_MORE = 2, IS_UNKNOWN = 4 };

/* Take one message: (client, header, HAS_ bits). When more than the header is left, or nobody knows the sender, the caller reads on. */
static PyObject *take_message(void *socket, PyObject *clients) {
    int more = 0, bits = 0;
    PyObject *identity = take_part(socket, &more);
    if (identity == NULL) return NULL;
    PyObject *client = PyDict_GetItemWithError(clients, identity);
    if (client == NULL) {
        if (PyErr_Occurred()) { Py_DECREF(identity); return NULL; }
        return Py_BuildValue("(Nyi)", identity, "", IS_UNKNOWN | HAS_MORE);
    }
    Py_INCREF(client);
    Py_DECREF(identity);
    PyObject *header = take_part(socket, &more);
    if (header != NULL && PyBytes_GET_SIZE(header) == 0 && more) {
        bits = HAS_DELIMITER;
        Py_DECREF(header);
        header = take_part(socket, &more);
    }
    if (header == NULL) {
        Py_DECREF(client);
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_OSError, "a message without its last part");
        return NULL;
    }
    return Py_BuildValue("(NNi)", client, header, bits | (more ? HAS_MORE : 0));
}

static PyObject *hot_receive(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyDict_Check(args[1]) || zmq.msg_recv == NULL) return PyErr_Format(PyExc_TypeError, "socket, dict, limit");
    void *socket = PyLong_AsVoidPtr(args[0]);
    long limit = PyLong_AsLong(args[2]);
    if (PyErr_Occurred()) return NULL;
    PyObject *messages = PyList_New(0);
    for (long i = 0; messages != NULL && i < limit; i++) {
        PyObject *message = take_message(socket, args[1]);
        if (message == NULL) {
            if (PyErr_Occurred()) Py_CLEAR(messages);
            break;
        }
        long bits = PyLong_AsLong(PyTuple_GET_ITEM(message, 2));
        if (PyList_Append(messages, message) < 0) Py_CLEAR(messages);
        Py_DECREF(message);
        if (bits & HAS_MORE) break;
    }
    return messages;
}

/* --- sending ------------------------------------------------------------------------------------------------------------- */

/* Once its first part is taken, a ROUTER takes all of a message. */
static int send_part(void *socket, const char *bytes, Py_ssize_t size, int flags) {
    int sent;
    do sent = zmq.send(socket, bytes, (size_t)size, flags | ZMQ_DONTWAIT_FLAG);
    while (sent < 0 && zmq.error() == EINTR);
    return sent < 0 ? zmq.error() : 0;
}

/* send(socket, [(identity, header, has_delimiter)], start): return (the first that was not sent, its errno or 0). */
static PyObject *hot_send(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyList_Check(args[1]) || zmq.send == NULL) return PyErr_Format(PyExc_TypeError, "socket, list, start");
    void *socket = PyLong_AsVoidPtr(args[0]);
    Py_ssize_t at = PyLong_AsSsize_t(args[2]), size = PyList_GET_SIZE(args[1]);
    if (PyErr_Occurred()) return NULL;
    int error = 0;
    for (; at < size && at >= 0; at++) {
        PyObject *message = PyList_GET_ITEM(args[1], at);
        if (!PyTuple_Check(message) || PyTuple_GET_SIZE(message) != 3) return PyErr_Format(PyExc_TypeError, "a tuple of three");
        PyObject *identity = PyTuple_GET_ITEM(message, 0), *header = PyTuple_GET_ITEM(message, 1);
        if (!PyBytes_Check(identity) || !PyBytes_Check(header)) return PyErr_Format(PyExc_TypeError, "identity and header are bytes");
        error = send_part(socket, PyBytes_AS_STRING(identity), PyBytes_GET_SIZE(identity), ZMQ_SNDMORE_FLAG);
        if (error) break;
        if (PyTuple_GET_ITEM(message, 2) == Py_True) {
            error = send_part(socket, "", 0, ZMQ_SNDMORE_FLAG);
            if (error) break;
        }
        error = send_part(socket, PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header), 0);
        if (error) break;
    }
    return Py_BuildValue("(ni)", at, error);
}

/* --- the layout cache ---------------------------------------------------------------------------------------------------- */

/* join(spans, header): the parts of header at spans, (start u32, stop u32) each, as one bytes. */
static PyObject *hot_join(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyBytes_Check(args[0]) || !PyBytes_Check(args[1])) return PyErr_Format(PyExc_TypeError, "spans, header: bytes");
    const char *spans = PyBytes_AS_STRING(args[0]), *header = PyBytes_AS_STRING(args[1]);
    uint64_t size = (uint64_t)PyBytes_GET_SIZE(args[1]), total = 0;
    Py_ssize_t number = PyBytes_GET_SIZE(args[0]) / 8;
    uint32_t span[2];
    for (Py_ssize_t i = 0; i < number; i++) {
        memcpy(span, spans + 8 * i, 8);
        if (span[0] > span[1] || span[1] > size) return PyErr_Format(PyExc_ValueError, "a span outside of the header");
        total += span[1] - span[0];
    }
    PyObject *joined = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (joined == NULL) return NULL;
    char *to = PyBytes_AS_STRING(joined);
    for (Py_ssize_t i = 0; i < number; i++) {
        memcpy(span, spans + 8 * i, 8);
        memcpy(to, header + span[0], span[1] - span[0]);
        to += span[1] - span[0];
    }
    return joined;
}

/* --- replies ------------------------------------------------------------------------------------------------------------- */

static PyObject *name_slot, *name_request_id, *name_born_us, *name_key, *name_dispatched_ns, *name_arrived_ns, *name_retries, *name_marks;

static int read_u64(PyObject *object, PyObject *name, uint64_t *value) {
    PyObject *number = PyObject_GetAttr(object, name);
    if (number == NULL) return -1;
    *value = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return *value == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
}

static void put_u64(unsigned char *to, uint64_t value) { memcpy(to, &value, 8); }

static uint32_t whole_us(uint64_t ns) {
    uint64_t us = ns / 1000;
    return us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

/* Where things lie in the template of a reply; the i-th copy is (offset in the header, offset in the row, bytes). */
typedef struct {
    Py_buffer template, rows, stamps, copies, timed;
    Py_ssize_t stride, stages, route_at, timing_at, retries_at, backlog_at;
} form_t;

static int within(Py_ssize_t at, Py_ssize_t size, Py_ssize_t whole) { return at >= 0 && size >= 0 && at <= whole - size; }

static int form_is_sound(const form_t *form) {
    Py_ssize_t header = form->template.len, copies = form->copies.len / 12;
    if (!within(form->route_at, 56, header) || !within(form->retries_at, 1, header) || !within(form->backlog_at, 4, header)) return 0;
    if (form->stages < 0 || form->stages > 64 || form->timed.len != form->stages) return 0;
    if (!within(form->timing_at, form->stages * 12, header) || form->stride < 0) return 0;
    for (Py_ssize_t i = 0; i < copies; i++) {
        uint32_t copy[3];
        memcpy(copy, (char *)form->copies.buf + 12 * i, 12);
        if (!within(copy[0], copy[2], header) || !within(copy[1], copy[2], form->stride)) return 0;
    }
    return 1;
}

static void write_timing(const form_t *form, unsigned char *header, uint64_t slot, uint64_t before_ns) {
    const char *stamps = (const char *)form->stamps.buf + slot * (uint64_t)form->stages * 24;
    const unsigned char *timed = form->timed.buf;
    for (Py_ssize_t stage = 0; stage < form->stages; stage++) {
        if (!timed[stage]) continue;
        uint64_t words[3]; /* started_ns, done_ns, batch */
        memcpy(words, stamps + 24 * stage, 24);
        uint32_t row[3] = {words[0] > before_ns ? whole_us(words[0] - before_ns) : 0,
                           words[1] > words[0] ? whole_us(words[1] - words[0]) : 0, (uint32_t)words[2]};
        memcpy(header + form->timing_at + 12 * stage, row, 12);
        before_ns = words[1];
    }
}

static PyObject *one_reply(const form_t *form, PyObject *request) {
    uint64_t slot, id, born_us, key, dispatched_ns, arrived_ns, retries, marks;
    if (read_u64(request, name_slot, &slot) || read_u64(request, name_request_id, &id) || read_u64(request, name_born_us, &born_us) ||
        read_u64(request, name_key, &key) || read_u64(request, name_dispatched_ns, &dispatched_ns) ||
        read_u64(request, name_arrived_ns, &arrived_ns) || read_u64(request, name_retries, &retries) || read_u64(request, name_marks, &marks))
        return NULL;
    uint64_t stride = (uint64_t)form->stride, stamp_bytes = (uint64_t)form->stages * 24;
    if (slot >= (1u << 20) || (slot + 1) * stride > (uint64_t)form->rows.len || (slot + 1) * stamp_bytes > (uint64_t)form->stamps.len)
        return PyErr_Format(PyExc_ValueError, "slot %llu is not there", (unsigned long long)slot);
    PyObject *made = PyBytes_FromStringAndSize(form->template.buf, form->template.len);
    if (made == NULL) return NULL;
    unsigned char *header = (unsigned char *)PyBytes_AS_STRING(made);
    put_u64(header + form->route_at, id);
    put_u64(header + form->route_at + 16, born_us);
    put_u64(header + form->route_at + 24, key);
    write_timing(form, header, slot, dispatched_ns);
    header[form->retries_at] = (unsigned char)(retries + marks > 255 ? 255 : retries + marks);
    uint32_t backlog_us = dispatched_ns > arrived_ns ? whole_us(dispatched_ns - arrived_ns) : 0;
    memcpy(header + form->backlog_at, &backlog_us, 4);
    const char *row = (const char *)form->rows.buf + slot * stride;
    for (Py_ssize_t i = 0; i < form->copies.len / 12; i++) {
        uint32_t copy[3];
        memcpy(copy, (char *)form->copies.buf + 12 * i, 12);
        memcpy(header + copy[0], row + copy[1], copy[2]);
    }
    return made;
}

/* replies((template, rows, stamps, copies, timed, stride, stages, route_at, timing_at, retries_at, backlog_at), requests) */
static PyObject *hot_replies(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    form_t form = {0};
    if (count != 2 || !PyTuple_Check(args[0]) || !PyList_Check(args[1])) return PyErr_Format(PyExc_TypeError, "form, list of requests");
    if (!PyArg_ParseTuple(args[0], "y*y*y*y*y*nnnnnn", &form.template, &form.rows, &form.stamps, &form.copies, &form.timed, &form.stride,
                          &form.stages, &form.route_at, &form.timing_at, &form.retries_at, &form.backlog_at))
        return NULL;
    PyObject *headers = form_is_sound(&form) ? PyList_New(PyList_GET_SIZE(args[1])) : PyErr_Format(PyExc_ValueError, "a form that fits nowhere");
    for (Py_ssize_t i = 0; headers != NULL && i < PyList_GET_SIZE(headers); i++) {
        PyObject *header = one_reply(&form, PyList_GET_ITEM(args[1], i));
        if (header == NULL) Py_CLEAR(headers);
        else PyList_SET_ITEM(headers, i, header);
    }
    PyBuffer_Release(&form.template);
    PyBuffer_Release(&form.rows);
    PyBuffer_Release(&form.stamps);
    PyBuffer_Release(&form.copies);
    PyBuffer_Release(&form.timed);
    return headers;
}

static PyMethodDef methods[] = {
    {"link", hot_link, METH_O, "link(path): use the libzmq at path, which is loaded already."},
    {"receive", (PyCFunction)(void (*)(void))hot_receive, METH_FASTCALL, "receive(socket, clients, limit) -> [(client, header, bits)]"},
    {"send", (PyCFunction)(void (*)(void))hot_send, METH_FASTCALL, "send(socket, [(identity, header, has_delimiter)], start) -> (next, errno)"},
    {"join", (PyCFunction)(void (*)(void))hot_join, METH_FASTCALL, "join(spans, header) -> bytes"},
    {"replies", (PyCFunction)(void (*)(void))hot_replies, METH_FASTCALL, "replies(form, requests) -> [header]"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_hot", "The broker's work per message in C.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__hot(void) {
    struct { PyObject **place; const char *name; } names[] = {
        {&name_slot, "slot"}, {&name_request_id, "request_id"}, {&name_born_us, "born_us"}, {&name_key, "key"},
        {&name_dispatched_ns, "dispatched_ns"}, {&name_arrived_ns, "arrived_ns"}, {&name_retries, "retries"}, {&name_marks, "marks"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((*names[i].place = PyUnicode_InternFromString(names[i].name)) == NULL) return NULL;
    return PyModule_Create(&module);
}
