/* The compiled builder: uncompressed records in, Arrow columns out. `pure.py` is the same in Python; see there
 * for the order of the checks, which must be the same, and `outcome.py` for the meaning of the numbers.
 *
 * The bytes are untrusted. What keeps this safe:
 *
 * - every read comes after a comparison with the end of the record or of the body;
 * - each byte of the body is read once. Another thread may write to it while we run without the GIL, and a
 *   length that is checked and then read again might have changed in between;
 * - memory is bounded by the bytes that are there, never by a count or length that they claim;
 * - sums that could overflow are made with checks, or unsigned where wrapping is harmless.
 *
 * Only the limited API of Python 3.11 is used, so that one build works with every later version.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INTERFACE 2
#define HEADER_COST 8
#define RECORD_SIZE_MIN 7
#define MICROSECONDS 1000
#define SMALL_SIZE (64 * 1024)

/* As in `outcome.py`. The last one exists only here: it becomes a MemoryError. */
enum outcome {
    FINISHED,
    FULL,
    PAST_END,
    NUMBER_CUT_OFF,
    NUMBER_TOO_LONG,
    RECORD_SIZE,
    OFFSET_DELTA,
    TIMESTAMP,
    FIELD_SIZE,
    HEADER_COUNT,
    HEADER_KEY_NULL,
    RECORD_NOT_USED_UP,
    BYTES_FOLLOW,
    NO_MEMORY,
};

/* ---- memory that grows ------------------------------------------------------------------------------ */

typedef struct {
    uint8_t *bytes;
    size_t size;
    size_t capacity;
    size_t capacity_expected; /* the size that will most likely be needed, or 0 */
    size_t capacity_usual;    /* a size that is nearly always enough, or 0 */
} Run;

/* Make room for `extra` more bytes. Doubles the capacity, so that appending is cheap on average.
 *
 * Two exceptions: a buffer that is no longer small gets its expected capacity at once, because doubling would copy it
 * several times. And doubling stops at the usual capacity if that is enough. Otherwise a piece would take twice its
 * size, and malloc could not reuse the memory of the previous piece: every page of every piece would cost a page fault.
 */
static bool run_reserve(Run *run, size_t extra)
{
    if (extra <= run->capacity - run->size) {
        return true;
    }
    if (extra > (size_t)PTRDIFF_MAX - run->size) {
        return false;
    }
    size_t wanted = run->size + extra;
    size_t capacity = run->capacity > (size_t)PTRDIFF_MAX / 2 ? wanted : run->capacity * 2;
    if (wanted > SMALL_SIZE && capacity < run->capacity_expected) {
        capacity = run->capacity_expected;
    }
    if (capacity > run->capacity_usual && run->capacity_usual >= wanted) {
        capacity = run->capacity_usual;
    }
    if (capacity < wanted) {
        capacity = wanted;
    }
    if (capacity < 64) {
        capacity = 64;
    }
    uint8_t *bytes = realloc(run->bytes, capacity);
    if (bytes == NULL) {
        return false;
    }
    run->bytes = bytes;
    run->capacity = capacity;
    return true;
}

static bool run_append(Run *run, const void *bytes, size_t size)
{
    if (!run_reserve(run, size)) {
        return false;
    }
    if (size > 0) {
        memcpy(run->bytes + run->size, bytes, size);
        run->size += size;
    }
    return true;
}

static void run_free(Run *run)
{
    free(run->bytes);
    *run = (Run){0};
}

/* A bitmap as Arrow has it, lowest bit first. */
typedef struct {
    Run bits;
    int64_t count;
    int64_t null_count;
} Validity;

static bool validity_append(Validity *validity, bool valid)
{
    unsigned bit = (unsigned)(validity->count & 7);
    if (bit == 0) {
        uint8_t none = 0;
        if (!run_append(&validity->bits, &none, 1)) {
            return false;
        }
    }
    if (valid) {
        validity->bits.bytes[validity->bits.size - 1] |= (uint8_t)(1u << bit);
    }
    else {
        validity->null_count++;
    }
    validity->count++;
    return true;
}

/* ---- columns ---------------------------------------------------------------------------------------- */

typedef struct {
    Validity validity;
    Run offsets;
    Run data;
} Bytes;

/* A field of a record: where it is in the body, or NULL for null. */
typedef struct {
    const uint8_t *start;
    size_t size;
} Field;

static bool offsets_append(Run *offsets, size_t end)
{
    /* The limits of a piece keep every column below this. If they ever do not, fail instead of wrapping. */
    if (end > INT32_MAX) {
        return false;
    }
    int32_t number = (int32_t)end;
    return run_append(offsets, &number, sizeof number);
}

static bool bytes_append(Bytes *column, Field field)
{
    bool is_null = field.start == NULL;
    return (is_null || run_append(&column->data, field.start, field.size))
        && validity_append(&column->validity, !is_null)
        && offsets_append(&column->offsets, column->data.size);
}

static void bytes_free(Bytes *column)
{
    run_free(&column->validity.bits);
    run_free(&column->offsets);
    run_free(&column->data);
}

/* The state of a column of bytes before a record whose headers turned out not to fit. */
typedef struct {
    int64_t count;
    int64_t null_count;
    size_t data_size;
} Mark;

static Mark bytes_mark(const Bytes *column)
{
    return (Mark){column->validity.count, column->validity.null_count, column->data.size};
}

static void bytes_restore(Bytes *column, Mark mark)
{
    Validity *validity = &column->validity;
    validity->count = mark.count;
    validity->null_count = mark.null_count;
    validity->bits.size = (size_t)((mark.count + 7) / 8);
    if (mark.count & 7) {
        validity->bits.bytes[validity->bits.size - 1] &= (uint8_t)((1u << (mark.count & 7)) - 1);
    }
    column->offsets.size = (size_t)(mark.count + 1) * sizeof(int32_t);
    column->data.size = mark.data_size;
}

typedef struct {
    PyObject_HEAD
    bool is_busy;
    bool is_finished;
    bool want_key;
    bool want_value;
    bool include_headers;
    bool header_keys_are_utf8;
    int64_t row_count;
    int64_t byte_count;
    Run offsets;
    Run timestamps;
    Validity timestamp_validity;
    Run timestamp_types;
    Bytes key;
    Bytes value;
    Validity headers_validity;
    Run headers_offsets;
    Bytes header_keys;
    Bytes header_values;
} Builder;

static void builder_free_columns(Builder *self)
{
    run_free(&self->offsets);
    run_free(&self->timestamps);
    run_free(&self->timestamp_validity.bits);
    run_free(&self->timestamp_types);
    bytes_free(&self->key);
    bytes_free(&self->value);
    run_free(&self->headers_validity.bits);
    run_free(&self->headers_offsets);
    bytes_free(&self->header_keys);
    bytes_free(&self->header_values);
}

/* ---- reading ---------------------------------------------------------------------------------------- */

typedef struct {
    long long record_count;
    long long base_offset;
    long long last_offset_delta;
    long long base_timestamp;
    int is_log_append_time;
} Batch;

typedef struct {
    long long start_offset;
    long long end_offset;
    long long rows_max;
    long long bytes_max;
    long long bytes_expected;
} Bounds;

/* The numbers that `describe` puts into the text of an error. */
typedef struct {
    int64_t first;
    int64_t second;
} Detail;

/* Read the zigzag varint at `*at`, which ends at `end` at the latest; `*at` moves after it. */
static inline enum outcome read_number(const uint8_t **at, const uint8_t *end, int64_t *number)
{
    const uint8_t *next = *at;
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        if (next == end) {
            return NUMBER_CUT_OFF;
        }
        uint8_t byte = *next++;
        /* The tenth byte has one bit left, so the shift never grows beyond 63. */
        if (shift == 63 && byte > 1) {
            return NUMBER_TOO_LONG;
        }
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            break;
        }
    }
    *at = next;
    *number = (int64_t)((value >> 1) ^ (0 - (value & 1)));
    return FINISHED;
}

static inline enum outcome read_field(const uint8_t **at, const uint8_t *end, Field *field, Detail *detail)
{
    int64_t size = 0;
    enum outcome outcome = read_number(at, end, &size);
    if (outcome != FINISHED) {
        return outcome;
    }
    if (size == -1) {
        *field = (Field){NULL, 0};
        return FINISHED;
    }
    if (size < 0 || size > end - *at) {
        *detail = (Detail){size, end - *at};
        return FIELD_SIZE;
    }
    *field = (Field){*at, (size_t)size};
    *at += size;
    return FINISHED;
}

/* Whether these bytes are UTF-8 as Python and Arrow understand it: shortest form, no surrogates. */
static bool is_utf8(const uint8_t *bytes, size_t size)
{
    size_t at = 0;
    while (at < size) {
        uint8_t lead = bytes[at++];
        if (lead < 0x80) {
            continue;
        }
        unsigned more;
        uint8_t low = 0x80, high = 0xBF; /* of the second byte; narrower after some leads */
        if (lead >= 0xC2 && lead <= 0xDF) {
            more = 1;
        }
        else if (lead >= 0xE0 && lead <= 0xEF) {
            more = 2;
            low = lead == 0xE0 ? 0xA0 : low;
            high = lead == 0xED ? 0x9F : high;
        }
        else if (lead >= 0xF0 && lead <= 0xF4) {
            more = 3;
            low = lead == 0xF0 ? 0x90 : low;
            high = lead == 0xF4 ? 0x8F : high;
        }
        else {
            return false;
        }
        if (more > size - at || bytes[at] < low || bytes[at] > high) {
            return false;
        }
        for (unsigned index = 1; index < more; index++) {
            if ((bytes[at + index] & 0xC0) != 0x80) {
                return false;
            }
        }
        at += more;
    }
    return true;
}

/* Whether a row of this cost must go to the next piece. The first row of a piece never must. */
static inline bool would_be_too_much(const Builder *self, int64_t cost, const Bounds *bounds)
{
    return self->row_count > 0 && cost > bounds->bytes_max - self->byte_count;
}

static bool append_header(Builder *self, Field name, Field value)
{
    size_t start = self->header_keys.data.size;
    if (!bytes_append(&self->header_keys, name) || !bytes_append(&self->header_values, value)) {
        return false;
    }
    /* Checks our copy, which no other thread can change. */
    if (self->header_keys_are_utf8) {
        self->header_keys_are_utf8 = is_utf8(self->header_keys.data.bytes + start, name.size);
    }
    return true;
}

/* Append a row except its headers, which were appended before. */
static bool append_row(Builder *self, int64_t offset, int64_t timestamp, int32_t type, Field key, Field value)
{
    int64_t microseconds = 0;
    bool fits = !__builtin_mul_overflow(timestamp, (int64_t)MICROSECONDS, &microseconds);
    if (!fits) {
        microseconds = 0;
    }
    if (!run_append(&self->offsets, &offset, sizeof offset)
        || !run_append(&self->timestamps, &microseconds, sizeof microseconds)
        || !validity_append(&self->timestamp_validity, fits)
        || !run_append(&self->timestamp_types, &type, sizeof type)
        || (self->want_key && !bytes_append(&self->key, key))
        || (self->want_value && !bytes_append(&self->value, value))) {
        return false;
    }
    if (self->include_headers) {
        size_t header_count = (size_t)self->header_keys.validity.count;
        int32_t last_count = 0;
        memcpy(&last_count, self->headers_offsets.bytes + self->headers_offsets.size - sizeof last_count,
               sizeof last_count);
        if (!validity_append(&self->headers_validity, header_count != (size_t)last_count)
            || !offsets_append(&self->headers_offsets, header_count)) {
            return false;
        }
    }
    self->row_count++;
    return true;
}

/* Read the fields of a record between `at` and `end`, and add the row if it is requested. */
static enum outcome add_fields(Builder *self, const uint8_t *at, const uint8_t *end, int64_t offset,
                               int64_t timestamp, int32_t type, const Bounds *bounds, Detail *detail)
{
    bool wanted = offset >= bounds->start_offset;
    Field key = {0}, value = {0};
    enum outcome outcome = read_field(&at, end, &key, detail);
    if (outcome == FINISHED) {
        outcome = read_field(&at, end, &value, detail);
    }
    if (outcome != FINISHED) {
        return outcome;
    }
    int64_t cost = 0;
    if (self->want_key) {
        cost += (int64_t)key.size;
    }
    if (self->want_value) {
        cost += (int64_t)value.size;
    }
    if (wanted && would_be_too_much(self, cost, bounds)) {
        return FULL;
    }
    int64_t header_count = 0;
    outcome = read_number(&at, end, &header_count);
    if (outcome != FINISHED) {
        return outcome;
    }
    if (header_count < 0) {
        *detail = (Detail){header_count, 0};
        return HEADER_COUNT;
    }
    /* The count only ends the loop: each pass consumes at least two bytes or returns. */
    for (; header_count > 0; header_count--) {
        Field name = {0}, content = {0};
        outcome = read_field(&at, end, &name, detail);
        if (outcome != FINISHED) {
            return outcome;
        }
        if (name.start == NULL) {
            return HEADER_KEY_NULL;
        }
        outcome = read_field(&at, end, &content, detail);
        if (outcome != FINISHED) {
            return outcome;
        }
        if (wanted && self->include_headers) {
            cost += HEADER_COST + (int64_t)name.size + (int64_t)content.size;
            if (would_be_too_much(self, cost, bounds)) {
                return FULL;
            }
            if (!append_header(self, name, content)) {
                return NO_MEMORY;
            }
        }
    }
    if (at != end) {
        *detail = (Detail){end - at, 0};
        return RECORD_NOT_USED_UP;
    }
    if (wanted) {
        if (!append_row(self, offset, timestamp, type, key, value)) {
            return NO_MEMORY;
        }
        self->byte_count += cost;
    }
    return FINISHED;
}

/* Read the record at `*at` and add it if it is requested. Moves `*at` and `*last_delta` only on success. */
static enum outcome add_record(Builder *self, const uint8_t **at, const uint8_t *body_end, int64_t *last_delta,
                               const Batch *batch, const Bounds *bounds, Detail *detail)
{
    const uint8_t *next = *at;
    int64_t size = 0, time_delta = 0, offset_delta = 0;
    enum outcome outcome = read_number(&next, body_end, &size);
    if (outcome != FINISHED) {
        return outcome;
    }
    if (size < 0 || size > body_end - next) {
        *detail = (Detail){size, body_end - next};
        return RECORD_SIZE;
    }
    if (size == 0) {
        return NUMBER_CUT_OFF;
    }
    const uint8_t *end = next + size;
    next++; /* the attributes, which are unused */
    outcome = read_number(&next, end, &time_delta);
    if (outcome == FINISHED) {
        outcome = read_number(&next, end, &offset_delta);
    }
    if (outcome != FINISHED) {
        return outcome;
    }
    if (offset_delta <= *last_delta || offset_delta > batch->last_offset_delta) {
        *detail = (Detail){offset_delta, *last_delta};
        return OFFSET_DELTA;
    }
    int64_t timestamp = batch->base_timestamp;
    if (!batch->is_log_append_time && __builtin_add_overflow(timestamp, time_delta, &timestamp)) {
        *detail = (Detail){time_delta, 0};
        return TIMESTAMP;
    }
    /* The caller has checked that the last offset of the batch fits. */
    int64_t offset = (int64_t)((uint64_t)batch->base_offset + (uint64_t)offset_delta);
    if (offset >= bounds->end_offset) {
        return PAST_END;
    }
    Mark keys = bytes_mark(&self->header_keys), values = bytes_mark(&self->header_values);
    bool keys_are_utf8 = self->header_keys_are_utf8;
    outcome = add_fields(self, next, end, offset, timestamp, batch->is_log_append_time ? 1 : 0, bounds, detail);
    if (outcome == FULL && self->include_headers) {
        bytes_restore(&self->header_keys, keys);
        bytes_restore(&self->header_values, values);
        self->header_keys_are_utf8 = keys_are_utf8;
    }
    if (outcome == FINISHED) {
        *at = end;
        *last_delta = offset_delta;
    }
    return outcome;
}

/* One allocation instead of a dozen doublings, for as many rows as these bytes can hold. */
static bool reserve_rows(Builder *self, size_t body_size, int64_t record_count, const Bounds *bounds)
{
    size_t rows = body_size / RECORD_SIZE_MIN + 1;
    if (record_count < 0 || bounds->rows_max <= self->row_count) {
        return true;
    }
    if ((uint64_t)record_count < rows) {
        rows = (size_t)record_count;
    }
    if ((uint64_t)(bounds->rows_max - self->row_count) < rows) {
        rows = (size_t)(bounds->rows_max - self->row_count);
    }
    return run_reserve(&self->offsets, rows * sizeof(int64_t))
        && run_reserve(&self->timestamps, rows * sizeof(int64_t))
        && run_reserve(&self->timestamp_types, rows * sizeof(int32_t))
        && (!self->want_key || run_reserve(&self->key.offsets, rows * sizeof(int32_t)))
        && (!self->want_value || run_reserve(&self->value.offsets, rows * sizeof(int32_t)));
}

/* ---- Python ----------------------------------------------------------------------------------------- */

typedef struct {
    PyTypeObject *block_type;
} State;

/* The memory of a column, read through the buffer protocol. */
typedef struct {
    PyObject_HEAD
    uint8_t *bytes;
    Py_ssize_t size;
} Block;

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static void block_dealloc(PyObject *self)
{
    free(((Block *)self)->bytes);
    free_object(self);
}

static int block_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    Block *block = (Block *)self;
    return PyBuffer_FillInfo(view, self, block->bytes, block->size, 1, flags);
}

static PyType_Slot block_slots[] = {
    {Py_tp_doc, (void *)"The memory of a column."},
    {Py_tp_dealloc, block_dealloc},
    {Py_bf_getbuffer, block_getbuffer},
    {0, NULL},
};

static PyType_Spec block_spec = {
    .name = "drmq.columnar._decoder.Block",
    .basicsize = sizeof(Block),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = block_slots,
};

/* A block that takes over the memory of `run`.
 *
 * Unused memory is returned only if it is much. The next piece will request as much as this one did, and malloc can
 * reuse a block of that size only if one was freed before.
 */
static PyObject *take_run(State *state, Run *run)
{
    Block *block = (Block *)PyType_GenericAlloc(state->block_type, 0);
    if (block == NULL) {
        return NULL;
    }
    uint8_t *bytes = run->bytes;
    if (bytes == NULL || run->size < run->capacity / 2) {
        bytes = realloc(bytes, run->size > 0 ? run->size : 1);
        if (bytes == NULL) {
            Py_DECREF(block);
            return PyErr_NoMemory();
        }
    }
    block->bytes = bytes;
    block->size = (Py_ssize_t)run->size;
    *run = (Run){0};
    return (PyObject *)block;
}

static PyObject *take_validity(State *state, Validity *validity)
{
    if (validity->null_count == 0) {
        return Py_NewRef(Py_None);
    }
    return take_run(state, &validity->bits);
}

static PyObject *take_bytes(State *state, bool wanted, Bytes *column)
{
    if (!wanted) {
        return Py_NewRef(Py_None);
    }
    /* "N" takes over the references, and passes on the error of one that is NULL. */
    return Py_BuildValue("(LNNN)", (long long)column->validity.null_count, take_validity(state, &column->validity),
                         take_run(state, &column->offsets), take_run(state, &column->data));
}

static PyObject *take_headers(State *state, Builder *self)
{
    if (!self->include_headers) {
        return Py_NewRef(Py_None);
    }
    long long count = self->header_keys.validity.count;
    return Py_BuildValue("(LNNLNNN)", (long long)self->headers_validity.null_count,
                         take_validity(state, &self->headers_validity), take_run(state, &self->headers_offsets),
                         count, take_bytes(state, true, &self->header_keys),
                         take_bytes(state, true, &self->header_values), PyBool_FromLong(self->header_keys_are_utf8));
}

static PyObject *builder_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int want_key, want_value, include_headers;
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Builder takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "ppp:Builder", &want_key, &want_value, &include_headers)) {
        return NULL;
    }
    Builder *self = (Builder *)PyType_GenericAlloc(type, 0); /* zeroed */
    if (self == NULL) {
        return NULL;
    }
    self->want_key = want_key != 0;
    self->want_value = want_value != 0;
    self->include_headers = include_headers != 0;
    self->header_keys_are_utf8 = true;
    if (!offsets_append(&self->key.offsets, 0) || !offsets_append(&self->value.offsets, 0)
        || !offsets_append(&self->headers_offsets, 0) || !offsets_append(&self->header_keys.offsets, 0)
        || !offsets_append(&self->header_values.offsets, 0)) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void builder_dealloc(PyObject *self)
{
    builder_free_columns((Builder *)self);
    free_object(self);
}

/* False, with an exception, if the builder is finished or another thread is using it. */
static bool builder_is_free(const Builder *self)
{
    if (self->is_finished || self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError,
                        self->is_finished ? "the builder is finished" : "the builder is used by another thread");
        return false;
    }
    return true;
}

static PyObject *builder_add(PyObject *object, PyObject *args)
{
    Builder *self = (Builder *)object;
    Py_buffer body;
    Py_ssize_t position;
    long long done_count, first_delta;
    Batch batch;
    Bounds bounds;
    if (!PyArg_ParseTuple(args, "y*(nLL)(LLLLp)(LLLLL):add", &body, &position, &done_count, &first_delta,
                          &batch.record_count, &batch.base_offset, &batch.last_offset_delta, &batch.base_timestamp,
                          &batch.is_log_append_time, &bounds.start_offset, &bounds.end_offset, &bounds.rows_max,
                          &bounds.bytes_max, &bounds.bytes_expected)) {
        return NULL;
    }
    if (!builder_is_free(self)) {
        PyBuffer_Release(&body);
        return NULL;
    }
    if (position < 0 || position > body.len || bounds.bytes_max < 0 || bounds.bytes_expected < 0) {
        PyBuffer_Release(&body);
        PyErr_SetString(PyExc_ValueError, "a position outside the body, or a negative limit");
        return NULL;
    }
    enum outcome outcome = FINISHED;
    Detail detail = {0, 0};
    int64_t last_delta = first_delta;
    /* An empty body may have no address, and arithmetic on a null pointer is undefined. */
    static const uint8_t nothing[1] = {0};
    const uint8_t *start = body.len > 0 ? (const uint8_t *)body.buf : nothing;
    const uint8_t *end = start + body.len;
    const uint8_t *at = start + position;

    self->is_busy = true;
    self->key.data.capacity_usual = self->value.data.capacity_usual = (size_t)bounds.bytes_max;
    self->value.data.capacity_expected = (size_t)bounds.bytes_expected;
    Py_BEGIN_ALLOW_THREADS
    if (done_count < batch.record_count
        && !reserve_rows(self, (size_t)(end - at), batch.record_count - done_count, &bounds)) {
        outcome = NO_MEMORY;
    }
    while (outcome == FINISHED && done_count < batch.record_count) {
        if (self->row_count >= bounds.rows_max) {
            outcome = FULL;
            break;
        }
        outcome = add_record(self, &at, end, &last_delta, &batch, &bounds, &detail);
        if (outcome == FINISHED) {
            done_count++;
        }
    }
    if (outcome == FINISHED && at != end) {
        detail = (Detail){end - at, 0};
        outcome = BYTES_FOLLOW;
    }
    Py_END_ALLOW_THREADS
    self->is_busy = false;

    position = at - start;
    PyBuffer_Release(&body);
    if (outcome == NO_MEMORY) {
        return PyErr_NoMemory();
    }
    return Py_BuildValue("(inLLLL)", (int)outcome, position, done_count, (long long)last_delta,
                         (long long)detail.first, (long long)detail.second);
}

static PyObject *builder_finish(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Builder *self = (Builder *)object;
    if (!builder_is_free(self)) {
        return NULL;
    }
    State *state = PyType_GetModuleState(Py_TYPE(object));
    if (state == NULL) {
        return NULL;
    }
    self->is_finished = true;
    return Py_BuildValue("(LNNLNNNNN)", (long long)self->row_count, take_run(state, &self->offsets),
                         take_run(state, &self->timestamps), (long long)self->timestamp_validity.null_count,
                         take_validity(state, &self->timestamp_validity), take_run(state, &self->timestamp_types),
                         take_bytes(state, self->want_key, &self->key),
                         take_bytes(state, self->want_value, &self->value), take_headers(state, self));
}

static PyObject *builder_row_count(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(((Builder *)self)->row_count);
}

static PyMethodDef builder_methods[] = {
    {"add", builder_add, METH_VARARGS,
     "Read on in the plain records `body` from `place`, and add those within bounds."},
    {"finish", builder_finish, METH_NOARGS, "Hand over the columns."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef builder_properties[] = {
    {"row_count", builder_row_count, NULL, "How many rows were added.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot builder_slots[] = {
    {Py_tp_doc, (void *)"Collects rows. Made for one piece, used by one thread, thrown away after `finish` or an error."},
    {Py_tp_new, builder_new},
    {Py_tp_dealloc, builder_dealloc},
    {Py_tp_methods, builder_methods},
    {Py_tp_getset, builder_properties},
    {0, NULL},
};

static PyType_Spec builder_spec = {
    .name = "drmq.columnar._decoder.Builder",
    .basicsize = sizeof(Builder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = builder_slots,
};

/* ---- the framing of records, without columns ------------------------------------------------------ */

#define BATCH_HEADER_SIZE 61
#define BATCH_LENGTH_AT 8
#define BATCH_LENGTH_OVERHEAD 12
#define LAST_OFFSET_DELTA_AT 23
#define BASE_TIMESTAMP_AT 27
#define RECORD_COUNT_AT 57

static uint64_t big_endian(const uint8_t *bytes, int size)
{
    uint64_t number = 0;
    for (int index = 0; index < size; index++) {
        number = number << 8 | bytes[index];
    }
    return number;
}

/* Where a record is, with its offset and its time. */
typedef struct {
    const uint8_t *fields;
    const uint8_t *end;
    int64_t offset_delta;
    int64_t timestamp;
} Frame;

/* The numbers at the start of a record, with the checks of `add_record` and in their order. */
static inline enum outcome read_frame(const uint8_t *next, const uint8_t *body_end, int64_t last_delta,
                                      int64_t last_offset_delta, int64_t base_timestamp, Frame *frame,
                                      Detail *detail)
{
    int64_t size = 0, time_delta = 0;
    enum outcome outcome = read_number(&next, body_end, &size);
    if (outcome != FINISHED) {
        return outcome;
    }
    if (size < 0 || size > body_end - next) {
        *detail = (Detail){size, body_end - next};
        return RECORD_SIZE;
    }
    if (size == 0) {
        return NUMBER_CUT_OFF;
    }
    const uint8_t *end = next + size;
    next++; /* the attributes, which are unused */
    outcome = read_number(&next, end, &time_delta);
    if (outcome == FINISHED) {
        outcome = read_number(&next, end, &frame->offset_delta);
    }
    if (outcome != FINISHED) {
        return outcome;
    }
    if (frame->offset_delta <= last_delta || frame->offset_delta > last_offset_delta) {
        *detail = (Detail){frame->offset_delta, last_delta};
        return OFFSET_DELTA;
    }
    if (__builtin_add_overflow(base_timestamp, time_delta, &frame->timestamp)) {
        *detail = (Detail){time_delta, 0};
        return TIMESTAMP;
    }
    frame->fields = next;
    frame->end = end;
    return FINISHED;
}

/* One record of a producer, as `add_record`, but nothing is kept of it. */
static enum outcome walk_record(const uint8_t **at, const uint8_t *body_end, int64_t *last_delta,
                                int64_t last_offset_delta, int64_t base_timestamp, Detail *detail)
{
    Frame frame;
    enum outcome outcome
        = read_frame(*at, body_end, *last_delta, last_offset_delta, base_timestamp, &frame, detail);
    if (outcome != FINISHED) {
        return outcome;
    }
    const uint8_t *next = frame.fields, *end = frame.end;
    int64_t header_count = 0;
    Field field;
    outcome = read_field(&next, end, &field, detail);
    if (outcome == FINISHED) {
        outcome = read_field(&next, end, &field, detail);
    }
    if (outcome == FINISHED) {
        outcome = read_number(&next, end, &header_count);
    }
    if (outcome != FINISHED) {
        return outcome;
    }
    if (header_count < 0) {
        *detail = (Detail){header_count, 0};
        return HEADER_COUNT;
    }
    /* Each pass consumes two bytes or ends, so a false count costs nothing. */
    for (; header_count > 0; header_count--) {
        outcome = read_field(&next, end, &field, detail);
        if (outcome == FINISHED && field.start == NULL) {
            outcome = HEADER_KEY_NULL;
        }
        if (outcome == FINISHED) {
            outcome = read_field(&next, end, &field, detail);
        }
        if (outcome != FINISHED) {
            return outcome;
        }
    }
    if (next != end) {
        *detail = (Detail){end - next, 0};
        return RECORD_NOT_USED_UP;
    }
    *at = end;
    *last_delta = frame.offset_delta;
    return FINISHED;
}

/* The GIL is kept: a batch takes microseconds, and to get the lock back from a busy thread takes longer. */
static PyObject *records_fault(PyObject *module, PyObject *batch)
{
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE) != 0) {
        return NULL;
    }
    if (view.len < BATCH_HEADER_SIZE) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "a batch that is shorter than its header");
        return NULL;
    }
    const uint8_t *bytes = (const uint8_t *)view.buf;
    int64_t record_count = (int32_t)big_endian(bytes + RECORD_COUNT_AT, 4);
    int64_t last_offset_delta = (int32_t)big_endian(bytes + LAST_OFFSET_DELTA_AT, 4);
    int64_t base_timestamp = (int64_t)big_endian(bytes + BASE_TIMESTAMP_AT, 8);
    const uint8_t *start = bytes + BATCH_HEADER_SIZE, *at = start, *end = bytes + view.len;
    enum outcome outcome = FINISHED;
    Detail detail = {0, 0};
    int64_t done_count = 0, last_delta = -1;
    while (outcome == FINISHED && done_count < record_count) {
        outcome = walk_record(&at, end, &last_delta, last_offset_delta, base_timestamp, &detail);
        if (outcome == FINISHED) {
            done_count++;
        }
    }
    if (outcome == FINISHED && at != end) {
        detail = (Detail){end - at, 0};
        outcome = BYTES_FOLLOW;
    }
    PyBuffer_Release(&view);
    if (outcome == FINISHED) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(inLLLL)", (int)outcome, (Py_ssize_t)(at - start), (long long)done_count,
                         (long long)last_delta, (long long)detail.first, (long long)detail.second);
}

/* The first record with a time of `wanted` or later: (0, offset delta, time), or None, or the outcome of a fault. */
static PyObject *first_at_time(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer body;
    long long record_count, last_offset_delta, base_timestamp, wanted;
    if (!PyArg_ParseTuple(args, "y*LLLL:first_at_time", &body, &record_count, &last_offset_delta, &base_timestamp,
                          &wanted)) {
        return NULL;
    }
    static const uint8_t nothing[1] = {0};
    const uint8_t *at = body.len > 0 ? (const uint8_t *)body.buf : nothing;
    const uint8_t *end = at + body.len;
    enum outcome outcome = FINISHED;
    Detail detail = {0, 0};
    Frame frame = {NULL, NULL, -1, 0};
    bool is_found = false;
    int64_t last_delta = -1, left = record_count;
    Py_BEGIN_ALLOW_THREADS
    for (; left > 0 && !is_found; left--) {
        outcome = read_frame(at, end, last_delta, last_offset_delta, base_timestamp, &frame, &detail);
        if (outcome != FINISHED) {
            break;
        }
        is_found = frame.timestamp >= wanted;
        at = frame.end;
        last_delta = frame.offset_delta;
    }
    if (outcome == FINISHED && !is_found && at != end) {
        detail = (Detail){end - at, 0};
        outcome = BYTES_FOLLOW;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&body);
    if (outcome != FINISHED) {
        return Py_BuildValue("(iLL)", (int)outcome, (long long)(record_count - left), (long long)detail.first);
    }
    if (!is_found) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(iLL)", (int)FINISHED, (long long)frame.offset_delta, (long long)frame.timestamp);
}

/* The number of records in whole batches, by their headers. Stops at an incomplete batch, and at what is no batch. */
static PyObject *count_records(PyObject *module, PyObject *batches)
{
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE) != 0) {
        return NULL;
    }
    const uint8_t *bytes = (const uint8_t *)view.buf;
    int64_t count = 0, left = view.len;
    while (left >= BATCH_HEADER_SIZE) {
        int64_t size = (int64_t)(int32_t)big_endian(bytes + BATCH_LENGTH_AT, 4) + BATCH_LENGTH_OVERHEAD;
        if (size < BATCH_HEADER_SIZE || size > left) {
            break;
        }
        count += (int32_t)big_endian(bytes + RECORD_COUNT_AT, 4);
        bytes += size;
        left -= size;
    }
    PyBuffer_Release(&view);
    return PyLong_FromLongLong((long long)count);
}

static PyMethodDef module_methods[] = {
    {"count_records", count_records, METH_O, "The number of records in whole batches, by their headers."},
    {"first_at_time", first_at_time, METH_VARARGS,
     "The first of the plain records with a time of `wanted` or later: (0, offset delta, time), or None if none has."},
    {"records_fault", records_fault, METH_O,
     "What is wrong with the plain records of a whole batch, as `Builder.add` says it, or None."},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->block_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &block_spec, NULL);
    if (state->block_type == NULL) {
        return -1;
    }
    PyObject *builder_type = PyType_FromModuleAndSpec(module, &builder_spec, NULL);
    if (builder_type == NULL) {
        return -1;
    }
    int failed = PyModule_AddObjectRef(module, "Builder", builder_type);
    Py_DECREF(builder_type);
    return failed != 0 ? -1 : PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->block_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->block_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "drmq.columnar._decoder",
    .m_doc = "The compiled builder of drmq.columnar.",
    .m_size = sizeof(State),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__decoder(void)
{
    return PyModuleDef_Init(&module_definition);
}
