#include "state.h"

// Streams, their capture, and graphs.

// --- capture -------------------------------------------------------------------------------------

static bool is_capturing(const struct CUstream_st *stream)
{
    return !stream->object.destroyed && stream->status == JC_CU_CAPTURE_ACTIVE;
}

// The next stream that is being captured, from the object `from` on.
static struct CUstream_st *next_capture(struct object *from)
{
    for (struct object *object = from; object; object = object->next)
        if (object->kind == OBJECT_STREAM && is_capturing((struct CUstream_st *) object))
            return (struct CUstream_st *) object;
    return NULL;
}

// Whether a thread in capture mode `mode` may do nothing unsafe because of this capture.
static bool forbids(const struct CUstream_st *stream, const struct thread *thread)
{
    if (thread->mode == JC_CU_CAPTURE_RELAXED)
        return false;
    if (stream->capturer == thread->number)
        return stream->mode != JC_CU_CAPTURE_RELAXED;
    return thread->mode == JC_CU_CAPTURE_GLOBAL && stream->mode == JC_CU_CAPTURE_GLOBAL;
}

int sim_check_capture(void)
{
    const struct thread *thread = sim_thread();
    int result = JC_CU_SUCCESS;
    for (struct CUstream_st *stream = next_capture(sim.objects); stream;
         stream = next_capture(stream->object.next)) {
        if (forbids(stream, thread)) {
            stream->status = JC_CU_CAPTURE_WAS_INVALIDATED;
            result = JC_CU_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

void sim_spoil_captures(CUcontext context)
{
    for (struct CUstream_st *stream = next_capture(sim.objects); stream;
         stream = next_capture(stream->object.next))
        if (!context || stream->object.context == context)
            stream->status = JC_CU_CAPTURE_WAS_INVALIDATED;
}

int sim_check_default_stream(CUcontext context)
{
    for (struct CUstream_st *stream = next_capture(sim.objects); stream;
         stream = next_capture(stream->object.next))
        if (stream->object.context == context && !stream->non_blocking)
            return JC_CU_CAPTURE_IMPLICIT;
    return JC_CU_SUCCESS;
}

int call_cuThreadExchangeStreamCaptureMode(int *mode)
{
    if (!mode || *mode < JC_CU_CAPTURE_GLOBAL || *mode > JC_CU_CAPTURE_RELAXED)
        return JC_CU_INVALID_VALUE;
    struct thread *thread = sim_thread();
    int before = thread->mode;
    thread->mode = *mode;
    *mode = before;
    return JC_CU_SUCCESS;
}

// --- streams -------------------------------------------------------------------------------------

bool sim_is_legacy(CUstream handle)
{
    return (uintptr_t) handle <= 1; // CU_STREAM_LEGACY
}

int sim_find_stream(CUstream handle, struct CUstream_st **stream)
{
    enum { PER_THREAD = 2 };
    *stream = NULL;
    if ((uintptr_t) handle <= PER_THREAD)
        return sim_check_current();
    int result = sim_check_object(handle, OBJECT_STREAM);
    if (result == JC_CU_SUCCESS)
        *stream = handle;
    return result;
}

int call_cuStreamCreate(CUstream *stream, unsigned flags)
{
    enum { NON_BLOCKING = 1 };
    int result = sim_check_current();
    if (result != JC_CU_SUCCESS)
        return result;
    if (!stream || flags > NON_BLOCKING)
        return JC_CU_INVALID_VALUE;
    struct CUstream_st *made = sim_object_create(OBJECT_STREAM, sizeof(*made));
    if (!made)
        return JC_CU_OUT_OF_MEMORY;
    made->non_blocking = flags == NON_BLOCKING;
    *stream = made;
    return JC_CU_SUCCESS;
}

int call_cuStreamDestroy_v2(CUstream stream)
{
    int result = sim_check_object(stream, OBJECT_STREAM);
    if (result == JC_CU_SUCCESS)
        stream->object.destroyed = true;
    return result;
}

// What synchronizing with a stream, or asking it, does to a capture.
static int check_sync(CUstream handle, struct CUstream_st **stream)
{
    int result = sim_find_stream(handle, stream);
    if (result != JC_CU_SUCCESS)
        return result;
    if (*stream && is_capturing(*stream)) {
        (*stream)->status = JC_CU_CAPTURE_WAS_INVALIDATED;
        return JC_CU_CAPTURE_UNSUPPORTED;
    }
    if (sim_is_legacy(handle) && sim_check_default_stream(sim_current()) != JC_CU_SUCCESS) {
        sim_spoil_captures(sim_current());
        return JC_CU_CAPTURE_IMPLICIT;
    }
    return sim_check_capture();
}

int call_cuStreamSynchronize(CUstream handle)
{
    struct CUstream_st *stream;
    int result = check_sync(handle, &stream);
    if (result == JC_CU_SUCCESS)
        sim_wait_stream_idle(sim_current_device(), stream, sim_is_legacy(handle));
    return result;
}

int call_cuStreamQuery(CUstream handle)
{
    struct CUstream_st *stream;
    int result = check_sync(handle, &stream);
    if (result == JC_CU_SUCCESS
        && sim_is_stream_busy(sim_current_device(), stream, sim_is_legacy(handle)))
        return JC_CU_NOT_READY;
    return result;
}

int call_cuStreamIsCapturing(CUstream handle, int *status)
{
    struct CUstream_st *stream;
    int result = sim_find_stream(handle, &stream);
    if (result != JC_CU_SUCCESS)
        return result;
    if (!status)
        return JC_CU_INVALID_VALUE;
    *status = stream ? stream->status : JC_CU_CAPTURE_NONE;
    // The driver says it without spoiling the capture.
    return sim_is_legacy(handle) ? sim_check_default_stream(sim_current()) : JC_CU_SUCCESS;
}

int call_cuStreamBeginCapture_v2(CUstream handle, int mode)
{
    struct CUstream_st *stream;
    int result = sim_find_stream(handle, &stream);
    if (result != JC_CU_SUCCESS)
        return result;
    if (mode < JC_CU_CAPTURE_GLOBAL || mode > JC_CU_CAPTURE_RELAXED)
        return JC_CU_INVALID_VALUE;
    if (!stream)
        return JC_CU_CAPTURE_UNSUPPORTED;
    if (stream->status != JC_CU_CAPTURE_NONE)
        return CU_ILLEGAL_STATE;
    stream->graph = sim_object_create(OBJECT_GRAPH, sizeof(*stream->graph));
    if (!stream->graph)
        return JC_CU_OUT_OF_MEMORY;
    stream->status = JC_CU_CAPTURE_ACTIVE;
    stream->mode = mode;
    stream->capturer = sim_thread()->number;
    return JC_CU_SUCCESS;
}

int call_cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    struct CUstream_st *stream;
    int result = sim_find_stream(handle, &stream);
    if (result != JC_CU_SUCCESS)
        return result;
    if (!graph)
        return JC_CU_INVALID_VALUE;
    *graph = NULL;
    if (!stream || stream->status == JC_CU_CAPTURE_NONE)
        return CU_ILLEGAL_STATE;
    if (stream->mode != JC_CU_CAPTURE_RELAXED && stream->capturer != sim_thread()->number)
        return CU_CAPTURE_WRONG_THREAD;
    if (stream->status == JC_CU_CAPTURE_WAS_INVALIDATED) {
        stream->graph->object.destroyed = true;
        result = JC_CU_CAPTURE_INVALIDATED;
    } else {
        *graph = stream->graph;
    }
    stream->status = JC_CU_CAPTURE_NONE;
    stream->graph = NULL;
    return result;
}

// --- graphs --------------------------------------------------------------------------------------

int call_cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *num_nodes)
{
    int result = sim_check_object(graph, OBJECT_GRAPH);
    if (result != JC_CU_SUCCESS)
        return result;
    if (!num_nodes || nodes)
        return nodes ? CU_NOT_SUPPORTED : JC_CU_INVALID_VALUE;
    *num_nodes = graph->num_nodes;
    return JC_CU_SUCCESS;
}

int call_cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph,
                                     unsigned long long flags)
{
    int result = sim_check_object(graph, OBJECT_GRAPH);
    if (result != JC_CU_SUCCESS)
        return result;
    if (!executable || flags != 0)
        return JC_CU_INVALID_VALUE;
    struct CUgraphExec_st *made = sim_object_create(OBJECT_EXECUTABLE, sizeof(*made));
    if (!made)
        return JC_CU_OUT_OF_MEMORY;
    made->num_nodes = graph->num_nodes;
    *executable = made;
    return JC_CU_SUCCESS;
}

int call_cuGraphLaunch(CUgraphExec executable, CUstream handle)
{
    struct CUstream_st *stream;
    int result = sim_check_object(executable, OBJECT_EXECUTABLE);
    if (result == JC_CU_SUCCESS)
        result = sim_find_stream(handle, &stream);
    if (result != JC_CU_SUCCESS)
        return result;
    sim_wait_for_loads(sim_current_device());
    sim.counts.graph_launches[sim_current()->device]++;
    return JC_CU_SUCCESS;
}

int call_cuGraphExecDestroy(CUgraphExec executable)
{
    int result = sim_check_object(executable, OBJECT_EXECUTABLE);
    if (result == JC_CU_SUCCESS)
        executable->object.destroyed = true;
    return result;
}

int call_cuGraphDestroy(CUgraph graph)
{
    int result = sim_check_object(graph, OBJECT_GRAPH);
    if (result == JC_CU_SUCCESS)
        graph->object.destroyed = true;
    return result;
}
