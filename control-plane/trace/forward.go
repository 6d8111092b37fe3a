package trace

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

const (
	// forwardRequests and forwardBytes bound what waits for the user's collector: some
	// seconds of a busy machine, and no more memory than the store itself may take.
	forwardRequests = 1024
	forwardBytes    = 16 << 20
	// forwardTimeout bounds one request to the user's collector.
	forwardTimeout = 5 * time.Second
)

// Forwarder passes export requests on to the user's own collector, after its own. It
// never makes a sender wait: what does not fit the queue is dropped and counted.
type Forwarder struct {
	collectorpb.UnimplementedTraceServiceServer

	own  collectorpb.TraceServiceServer
	user collectorpb.TraceServiceClient
	log  *slog.Logger

	mu     sync.Mutex // guards closing the queue
	closed bool
	queue  chan *collectorpb.ExportTraceServiceRequest

	waiting atomic.Int64 // bytes in the queue
	dropped atomic.Int64 // spans
	cancel  context.CancelFunc
	done    chan struct{}
}

// Forward starts to pass on to conn what own receives. The caller closes it.
func Forward(own collectorpb.TraceServiceServer, conn grpc.ClientConnInterface, log *slog.Logger) *Forwarder {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Forwarder{
		own:    own,
		user:   collectorpb.NewTraceServiceClient(conn),
		log:    log,
		queue:  make(chan *collectorpb.ExportTraceServiceRequest, forwardRequests),
		cancel: cancel,
		done:   make(chan struct{}),
	}
	go f.run(ctx)
	return f
}

// Export hands the request to the own collector, whose answer counts, and queues it
// for the user's.
func (f *Forwarder) Export(ctx context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	f.enqueue(req)
	return f.own.Export(ctx, req)
}

func (f *Forwarder) enqueue(req *collectorpb.ExportTraceServiceRequest) {
	size := int64(proto.Size(req))
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed && f.waiting.Load()+size <= forwardBytes {
		select {
		case f.queue <- req:
			f.waiting.Add(size)
			return
		default:
		}
	}
	f.dropped.Add(spansIn(req))
}

func (f *Forwarder) run(ctx context.Context) {
	defer close(f.done)
	failing := false
	for req := range f.queue {
		f.waiting.Add(-int64(proto.Size(req)))
		err := f.pass(ctx, req)
		if err != nil {
			f.dropped.Add(spansIn(req))
		}
		// One line when it starts and one when it ends: an absent collector fails
		// several times a second.
		switch {
		case err != nil && !failing:
			f.log.Warn("traces do not reach the user's collector", "error", err)
		case err == nil && failing:
			f.log.Info("traces reach the user's collector again", "dropped_spans", f.Dropped())
		}
		failing = err != nil
	}
}

func (f *Forwarder) pass(ctx context.Context, req *collectorpb.ExportTraceServiceRequest) error {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	_, err := f.user.Export(ctx, req)
	return err
}

// Dropped returns how many spans did not reach the user's collector.
func (f *Forwarder) Dropped() int64 { return f.dropped.Load() }

// Close sends what is queued until ctx ends, and stops. The own collector goes on.
func (f *Forwarder) Close(ctx context.Context) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return errors.New("trace forwarder closed twice")
	}
	f.closed = true
	close(f.queue)
	f.mu.Unlock()
	stop := context.AfterFunc(ctx, f.cancel)
	<-f.done
	f.cancel()
	if !stop() {
		return context.Cause(ctx)
	}
	return nil
}

func spansIn(req *collectorpb.ExportTraceServiceRequest) (n int64) {
	for _, r := range req.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			n += int64(len(s.GetSpans()))
		}
	}
	return n
}
