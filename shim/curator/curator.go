// Package curator does with the objects and volumes of a node what the operator asks for, and says what the node has learned.
package curator

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/s3proxy/learn"
)

const (
	// callsMost is how many calls are worked on at a time: an operator has one or two.
	callsMost = 16
	// callTimeout is how long one may take: 1 TB is read, or fetched, in that time by few.
	callTimeout = time.Hour
	// entriesMost is how many entries a message has, and textMost how many bytes each of their texts has, of which
	// stores and clients choose some: a message stays below the 4 MiB that gRPC takes.
	entriesMost = 256
	// recordsMost is how many records of workflows a message has: the longest have some 100 KB.
	recordsMost = 16
	textMost    = 2 << 10
)

var errBusy = problem.New(http.StatusTooManyRequests, "CacheBusy", "", "the node works on other calls; call again later")

// isNamespace is a label of the DNS (RFC 1123, section 2.1): it names a directory, and decides whose grants count.
var isNamespace = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Volumes are the versions of volumes on the node.
type Volumes interface {
	List() ([]tree.Held, error)
	Pin(at string, stay bool) error
	DropOne(at string) (bool, error)
	Version(ctx context.Context, of tree.Prefix, pod, volume string) (path string, made bool, err error)
}

// Learned is what the node has learned of functions, by their names; empty: of all.
type Learned func(function string) map[string][]learn.Template

// Records are what has come of the runs of workflows: of those of a namespace, or of one; empty: of all.
type Records func(namespace, name string) []*nodeapi.WorkflowRecord

// Observed is what the templates of observed inputs have named, of the functions of a namespace; empty: of all.
type Observed func(namespace string) []*nodeapi.CacheEntry

// Curator answers calls. Its methods may be called at the same time.
type Curator struct {
	objects *objects.Cache
	volumes Volumes
	learned Learned
	records Records
	named   Observed
	log     *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	calls  errgroup.Group // without errors
}

// New returns a curator, which has to be closed.
func New(o *objects.Cache, v Volumes, l Learned, r Records, named Observed, log *slog.Logger) *Curator {
	c := &Curator{objects: o, volumes: v, learned: l, records: r, named: named, log: log}
	c.calls.SetLimit(callsMost)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close ends the calls that are under way.
func (c *Curator) Close() {
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	_ = c.calls.Wait()
}

// Call does what a call says and answers later, from another goroutine, in one part or more.
func (c *Curator) Call(m *nodeapi.CacheCall, answer func(*nodeapi.CacheAnswer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return // the connection is about to end
	}
	if !c.calls.TryGo(func() error {
		ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
		defer cancel()
		entries, err := c.do(ctx, m)
		most := entriesMost
		switch m.GetVerb() {
		case nodeapi.CacheVerb_CACHE_VERB_LIST, nodeapi.CacheVerb_CACHE_VERB_ADVISE, nodeapi.CacheVerb_CACHE_VERB_OBSERVED: // which change nothing
		case nodeapi.CacheVerb_CACHE_VERB_WORKFLOWS:
			most = recordsMost
		default:
			c.log.Info("the operator has called for what the node keeps", "verb", m.GetVerb(), "namespace", m.GetNamespace(),
				"store", m.GetStore(), "reference", m.GetReference(), "entries", len(entries), "error", err)
		}
		for some := range slices.Chunk(entries, most) {
			answer(&nodeapi.CacheAnswer{Id: m.GetId(), Entries: some, More: true})
		}
		last := &nodeapi.CacheAnswer{Id: m.GetId()}
		if err != nil {
			last.Refused = refused(err)
		}
		answer(last)
		return nil
	}) {
		answer(&nodeapi.CacheAnswer{Id: m.GetId(), Refused: refused(errBusy)})
	}
}

func refused(err error) *nodeapi.Refused {
	p := problem.Of(err)
	return &nodeapi.Refused{Status: int32(p.Status), Reason: p.Title, Message: text(p.Detail), Field: text(p.Field)}
}

// text is what the operator sees of a text that may be long, or no text. gRPC sends only UTF-8.
func text(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), textMost)], string(unicode.ReplacementChar))
}

// do does a call.
func (c *Curator) do(ctx context.Context, m *nodeapi.CacheCall) ([]*nodeapi.CacheEntry, error) {
	switch m.GetVerb() {
	case nodeapi.CacheVerb_CACHE_VERB_WARM:
		return nil, c.warm(ctx, m)
	case nodeapi.CacheVerb_CACHE_VERB_ADVISE:
		return c.advise(m), nil
	case nodeapi.CacheVerb_CACHE_VERB_OBSERVED:
		return c.named(m.GetNamespace()), nil
	case nodeapi.CacheVerb_CACHE_VERB_WORKFLOWS:
		var entries []*nodeapi.CacheEntry
		for _, record := range c.records(m.GetNamespace(), m.GetReference()) {
			entries = append(entries, &nodeapi.CacheEntry{Workflow: record})
		}
		return entries, nil
	}
	var held []objects.Held
	var err error
	fits := func(k objects.Key) bool { return fits(m, k.Namespace, k.Store, k.Reference) }
	switch m.GetVerb() {
	case nodeapi.CacheVerb_CACHE_VERB_LIST:
		held = c.objects.List(fits)
	case nodeapi.CacheVerb_CACHE_VERB_PIN:
		held, err = c.objects.Pin(fits)
	case nodeapi.CacheVerb_CACHE_VERB_UNPIN:
		held = c.objects.Unpin(fits)
	case nodeapi.CacheVerb_CACHE_VERB_DROP:
		held = c.objects.Remove(fits)
	case nodeapi.CacheVerb_CACHE_VERB_VERIFY:
		held, err = c.objects.Verify(ctx, fits)
	default:
		return nil, problem.New(http.StatusNotImplemented, "CacheVerbUnknown", "", "the node's daemon is older than the control plane")
	}
	if err != nil {
		return nil, err
	}
	entries, err := c.versions(m)
	for _, h := range held {
		e := &nodeapi.CacheEntry{Namespace: text(h.Namespace), Store: text(h.Store), Reference: text(h.Reference), Version: text(h.Version),
			Bytes: h.Bytes, Tier: h.Tier, Users: int32(h.Users), Pinned: h.Pinned}
		if h.Damaged {
			e.Problem = "could not be read whole; it is forgotten"
		}
		entries = append(entries, e)
	}
	return entries, err
}

// versions does a call with the volumes. Verify reads their objects.
func (c *Curator) versions(m *nodeapi.CacheCall) (entries []*nodeapi.CacheEntry, err error) {
	all, err := c.volumes.List()
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		if !fits(m, h.Namespace, h.Store, h.Prefix) {
			continue
		}
		e := &nodeapi.CacheEntry{Namespace: text(h.Namespace), Store: text(h.Store), Reference: text(h.Prefix), Version: text(h.At[len(h.Namespace)+1:]),
			Bytes: h.Bytes, Users: int32(h.Pods), Pinned: h.Pinned, Objects: int32(h.Objects), Tier: "volume"}
		if h.Damaged {
			e.Problem = "a file of the volume is damaged; its pods keep it, the next pod gets another one"
		}
		switch m.GetVerb() {
		case nodeapi.CacheVerb_CACHE_VERB_PIN, nodeapi.CacheVerb_CACHE_VERB_UNPIN:
			stay := m.GetVerb() == nodeapi.CacheVerb_CACHE_VERB_PIN
			if err = c.volumes.Pin(h.At, stay); err == nil {
				e.Pinned = stay
			}
		case nodeapi.CacheVerb_CACHE_VERB_DROP:
			var dropped bool
			if dropped, err = c.volumes.DropOne(h.At); !dropped {
				e.Problem = "a pod has the volume; it stays"
			}
			e.Pinned = false
		}
		if err != nil {
			e.Problem = text(problem.Of(err).Error())
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// advise says what the node has learned of the functions of a namespace.
func (c *Curator) advise(m *nodeapi.CacheCall) (entries []*nodeapi.CacheEntry) {
	all := c.learned("")
	for _, function := range slices.Sorted(maps.Keys(all)) {
		namespace, _, _ := strings.Cut(function, "/")
		if m.GetNamespace() != "" && m.GetNamespace() != namespace {
			continue
		}
		for _, t := range all[function] {
			entries = append(entries, &nodeapi.CacheEntry{Namespace: text(namespace), Reference: text(t.Text), Bytes: t.Bytes,
				Advice: &nodeapi.Advice{Function: text(function), Right: t.Right, Tested: t.Tested, Waste: t.Waste, Proven: t.Proven}})
		}
	}
	return entries
}

// fits tells whether a call means an object or a volume.
func fits(m *nodeapi.CacheCall, namespace, store, ref string) bool {
	is := func(wanted, given string) bool { return wanted == "" || wanted == given }
	below := strings.HasSuffix(m.GetReference(), "/") && strings.HasPrefix(ref, m.GetReference())
	return is(m.GetNamespace(), namespace) && is(m.GetStore(), store) && (below || is(m.GetReference(), ref))
}

// warm fetches a volume, or an object, if the node does not have its present version.
func (c *Curator) warm(ctx context.Context, m *nodeapi.CacheCall) error {
	if !isNamespace.MatchString(m.GetNamespace()) {
		return problem.New(http.StatusBadRequest, "CacheReferenceInvalid", "namespace", "must be the name of a namespace")
	}
	if strings.HasSuffix(m.GetReference(), "/") {
		of, err := reference.ParseVolumes("warm=" + m.GetReference())
		if err == nil && len(of) != 1 {
			err = errors.New("must be one volume")
		}
		if err != nil {
			return problem.New(http.StatusBadRequest, "CacheReferenceInvalid", "reference", err.Error())
		}
		_, _, err = c.volumes.Version(ctx, tree.Prefix{Namespace: m.GetNamespace(), Store: m.GetStore(), Prefix: of[0].Prefix}, "", "")
		return err
	}
	i := c.objects.Fetch(ctx, objects.Request{ID: "warm:" + rand.Text(), Function: m.GetNamespace() + "/(warm)",
		Store: m.GetStore(), Reference: m.GetReference(), Limit: math.MaxInt64})
	defer i.Release()
	return i.Wait(ctx)
}
