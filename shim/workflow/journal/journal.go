// Package journal keeps in a Redis what the calls of a workflow's run have answered, so that another daemon can go on with a run whose own
// is lost (SpecFaaS, section V-E, has the controller keep it). One owner at a time writes it: what another one writes is refused by the
// store itself.
package journal

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

const (
	// prefix begins the names of records.
	prefix = "headstart:run:"
	// Lease is how long an owner that says nothing has its run, by the store's clock, and margin how much sooner it gives the run up by its
	// own: clocks do not go at the same pace.
	Lease, margin = 6 * time.Second, time.Second
	// keptFor is how long a record is kept that nobody writes: as long as clients commonly send a request again.
	keptFor = 24 * time.Hour
	// KeyMost is how long a key may be, in bytes: two UUIDs, or a name.
	KeyMost = 255
	// timeout bounds what the store is asked.
	timeout = 2 * time.Second
	// recordMost is how many bytes the answers of a run may have in its record, and entryMost a single one, or the run's own: as they are written, which
	// takes four bytes for three of a body of 256 KiB at most, and with their headers.
	recordMost, entryMost = 64 << 20, 2 << 20
	// PageMost is how many bytes of a record are read at a time. A call's answer that is larger is read by itself.
	PageMost = 1 << 20
	// statusMost is the largest status that an answer has (RFC 9110, section 15).
	statusMost = 999
	// calls begin the names of fields with what a call has answered, before the number of the answer.
	calls = "call:"
)

var (
	//go:embed open.lua
	openSource string
	//go:embed read.lua
	readSource string
	//go:embed note.lua
	noteSource string
	//go:embed end.lua
	endSource string

	openScript, readScript = redis.NewScript(openSource), redis.NewScript(readSource)
	noteScript, endScript  = redis.NewScript(noteSource), redis.NewScript(endSource)
)

// ReasonInProgress is why there is no run for a request: one for the same key has an owner.
const ReasonInProgress = "RunInProgress"

// ErrTakenOver is why a run does not go on: another node has it.
var ErrTakenOver = problem.New(http.StatusConflict, "RunTakenOver", "", "another node goes on with the run, as a request with its Idempotency-Key has come there; send the request again for its answer")

// ErrSilent is why a run does not go on: its store has said nothing for so long that another node may have it.
var ErrSilent = Unavailable(errors.New("it has said nothing for too long"))

// errFull is why a run does not go on whose record has no room.
var errFull = problem.New(http.StatusInsufficientStorage, "RunRecordFull", filterapi.AnnotationState,
	fmt.Sprintf("the answers of the run's calls take more than %d bytes in its record, or one of them more than %d; have functions answer less, or send the request without a key",
		recordMost, entryMost))

// Unavailable is that the store does not do what it is asked, or nobody knows whether it does. Of the cause only the words are kept: whether it was a
// timeout of the store's is not to be taken for one of the run's.
func Unavailable(err error) error {
	return fmt.Errorf("%w: %s", problem.New(http.StatusServiceUnavailable, problem.ReasonStateUnavailable, filterapi.AnnotationState,
		"the workflow's store does not take what the run has come to; a request with the same Idempotency-Key goes on with it"), err.Error())
}

// Malformed is that a record is not one that a node has written for such a run.
func Malformed(err error) error {
	return fmt.Errorf("%w: %w", problem.New(http.StatusInternalServerError, "RunRecordMalformed", filterapi.AnnotationState,
		"nobody can go on with the run, since its record is not as a node has written it; look at what else writes the store, and take a new Idempotency-Key"), err)
}

// Store returns what asks the Redis that a record is in, as long as the workflow may. Its error is a problem.
type Store func() (*redis.Client, error)

// Journal is the record of a run that somebody owns. Entry, Wrote and Read are for one goroutine, the others for all.
type Journal struct {
	store      Store
	key, owner string

	wrote int   // how many answers the record has
	bytes int64 // of them

	mu   sync.Mutex
	held time.Time // when the store was last asked that has said since that the owner is this one
}

// Run is what a record holds besides answers.
type Run struct {
	// ID is the run's, and Began when it has begun.
	ID    string
	Began time.Time
	// Again: it goes on, perhaps after some answers.
	Again bool
	// End is what the run has come to; nil: it has not ended.
	End *End
}

// Call is what one has answered, and when that has counted.
type Call struct {
	ID     uint64
	At     time.Time
	Answer program.Answer
}

// Entry is a call as it is written, and as it is read: what a run goes on by.
type Entry struct {
	field, value string
	Call         Call
}

// End is a run's answer.
type End struct {
	Status int    `json:"status"`
	Kind   string `json:"kind"`
	Body   []byte `json:"body"`
}

// Open begins a run, or goes on with one that has no owner any more. asked is the digest of what it was asked. Errors are problems: there is
// an owner, or the key is of another question.
func Open(ctx context.Context, store Store, workflow, key, asked, id string, now time.Time) (*Journal, Run, error) {
	sum := sha256.Sum256([]byte(key))
	j := &Journal{store: store, key: prefix + workflow + ":" + hex.EncodeToString(sum[:]), owner: rand.Text()}
	said, err := j.ask(ctx, openScript, j.owner, asked, id, now.UnixNano(), Lease.Milliseconds(), keptFor.Milliseconds(), entryMost)
	if err != nil {
		return nil, Run{}, err
	}
	switch said[0] {
	case "large":
		return nil, Run{}, Malformed(fmt.Errorf("it is larger than %d bytes", entryMost))
	case "other":
		return nil, Run{}, problem.New(http.StatusUnprocessableEntity, "IdempotencyKeyReused", "",
			"the Idempotency-Key was sent with another request, or before the workflow was changed; take a new one")
	case "busy":
		return nil, Run{}, problem.New(http.StatusConflict, ReasonInProgress, "",
			"a request with the same Idempotency-Key is being answered; send this one again when it has ended")
	}
	run, err := decodeRun(said[0] == "again", said[1], said[2], said[3])
	if err != nil {
		_ = j.Release(ctx) // then it is free a little later
		return nil, Run{}, Malformed(err)
	}
	return j, run, nil
}

// ask has the store run a script, whose answer begins with a word. Of all but "not" the owner has the run from when it was asked.
func (j *Journal) ask(ctx context.Context, script *redis.Script, args ...any) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	c, err := j.store()
	if err != nil {
		return nil, err
	}
	said, err := script.Run(ctx, c, []string{j.key}, args...).StringSlice()
	switch {
	case err != nil:
		return nil, Unavailable(err)
	case said[0] == "not":
		return nil, ErrTakenOver
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held = began
	return said[1:], nil
}

// Until is how long the run is the owner's for certain.
func (j *Journal) Until() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.held.Add(Lease - margin)
}

// Read returns the answers that follow those that were read, some of them at a time; none: there are no more.
func (j *Journal) Read(ctx context.Context) ([]Call, error) {
	page, err := j.ask(ctx, readScript, j.owner, calls, j.wrote+1, PageMost, entryMost)
	if err != nil {
		return nil, err
	}
	all := make([]Call, 0, len(page))
	for _, value := range page {
		c, err := decode(value)
		if err != nil {
			return nil, Malformed(fmt.Errorf("reading answer %d: %w", j.wrote+1, err))
		}
		all = append(all, c)
		j.Wrote(Entry{value: value})
	}
	return all, nil
}

// Entry is a call as it is written next, behind other entries. Its error is a problem if the record has no room for it.
func (j *Journal) Entry(c Call, behind ...Entry) (Entry, error) {
	value, err := c.encode()
	if err != nil {
		return Entry{}, err
	}
	bytes := j.bytes + int64(len(value))
	for _, e := range behind {
		bytes += int64(len(e.value))
	}
	if len(value) > entryMost || bytes > recordMost {
		return Entry{}, errFull
	}
	if c, err = decode(value); err != nil {
		return Entry{}, err
	}
	return Entry{calls + strconv.Itoa(j.wrote+len(behind)+1), value, c}, nil
}

// Wrote says that an entry is in the record: the next one comes after it.
func (j *Journal) Wrote(e Entry) {
	j.wrote++
	j.bytes += int64(len(e.value))
}

// Note writes what a call has answered. Nothing is to follow from that before.
func (j *Journal) Note(ctx context.Context, e Entry) error {
	return j.note(ctx, Lease, e.field, e.value)
}

// Beside is Note for what is written together with an attempt's effect, if that is in the destination that the record is in. The zero Entry is
// nothing: the effect counts if the run is the owner's.
func (j *Journal) Beside(destination string, e Entry) *attempt.Note {
	return &attempt.Note{Store: destination, Record: j.key, Owner: j.owner, Field: e.field, Value: e.value}
}

// End notes what the run has come to, in place of what its calls have answered.
func (j *Journal) End(ctx context.Context, e End) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("writing a run's end: %w", err)
	}
	_, err = j.ask(ctx, endScript, j.owner, string(b), keptFor.Milliseconds())
	return err
}

// Renew says that the owner is there.
func (j *Journal) Renew(ctx context.Context) error { return j.note(ctx, Lease) }

// Release lets somebody else go on at once.
func (j *Journal) Release(ctx context.Context) error { return j.note(ctx, 0) }

// note writes a field of the record, or none.
func (j *Journal) note(ctx context.Context, lease time.Duration, field ...any) error {
	_, err := j.ask(ctx, noteScript, append([]any{j.owner, lease.Milliseconds(), keptFor.Milliseconds()}, field...)...)
	return err
}

// stored is a Call as it is written.
type stored struct {
	ID     uint64             `json:"id"`
	At     time.Time          `json:"at"`
	Status int                `json:"status,omitempty"`
	Header http.Header        `json:"header,omitempty"`
	Body   []byte             `json:"body,omitempty"`
	Failed *filterapi.Problem `json:"failed,omitempty"`
}

func (c Call) encode() (string, error) {
	s := stored{ID: c.ID, At: c.At, Status: c.Answer.Status, Header: c.Answer.Header, Body: c.Answer.Body}
	if c.Answer.Err != nil {
		s.Failed = problem.Of(c.Answer.Err)
	}
	b, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("writing a call's answer: %w", err)
	}
	return string(b), nil
}

func decode(value string) (Call, error) {
	var s stored
	if err := json.Unmarshal([]byte(value), &s); err != nil {
		return Call{}, err
	}
	c := Call{ID: s.ID, At: s.At, Answer: program.Answer{Status: s.Status, Header: s.Header, Body: s.Body}}
	if s.Failed != nil {
		c.Answer.Err = s.Failed
		return c, nil
	}
	return c, check(s.Status)
}

func decodeRun(again bool, id, began, end string) (Run, error) {
	n, err := strconv.ParseInt(began, 10, 64)
	if err != nil {
		return Run{}, fmt.Errorf("reading when a run began: %w", err)
	}
	run := Run{ID: id, Began: time.Unix(0, n), Again: again}
	if end == "" {
		return run, nil
	}
	run.End = &End{}
	if err := json.Unmarshal([]byte(end), run.End); err != nil {
		return Run{}, fmt.Errorf("reading a run's end: %w", err)
	}
	return run, check(run.End.Status)
}

// check says that a status is none of an answer.
func check(status int) error {
	if status < http.StatusOK || status > statusMost {
		return fmt.Errorf("an answer has the status %d", status)
	}
	return nil
}
