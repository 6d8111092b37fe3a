// Package sdks sends S3 requests with unmodified AWS SDKs and the AWS CLI, and records what each client makes of the
// answers. An endpoint before a store passes if each client gets the same from both.
package sdks

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Client is a way to send S3 requests.
type Client string

// The clients. e2e/setup.sh installs them, except Go, which is built from cmd/sdk-go.
const (
	Boto3 Client = "boto3"
	JS    Client = "js"
	Go    Client = "go"
	CLI   Client = "cli"
)

// Clients are all of them.
var Clients = []Client{Boto3, JS, Go, CLI}

// Env is where a client runs, and what it is told.
type Env struct {
	// Endpoint is a URL whose host is an IP address. With a host name the SDKs for JavaScript and Go would send
	// requests to BUCKET.HOST.
	Endpoint, Region, Bucket string
	// Access and Secret are the client's key. If they are empty, the client asks CredentialsURI with Token.
	Access, Secret        string
	CredentialsURI, Token string
	// Variables are more environment variables, as NAME=value.
	Variables []string
	// BinDir has sdk-go and sdks/, as after `make setup build`.
	BinDir string
	// Command makes each process of the client, for instance in a network namespace; nil: exec.CommandContext.
	Command func(ctx context.Context, name string, args ...string) *exec.Cmd
	// Direct stores an object behind the endpoint's back. If it is nil, the client does.
	Direct func(ctx context.Context, key string, body io.ReadSeeker) error
	// Behind: the endpoint may write what is stored by one request behind, as an upload of one part. Its objects have the
	// entity tags of these then, and what a store says of its own accord is not compared: versitygw says the size of what
	// was put, and that the storage class is STANDARD, and stores compute a CRC64NVME if the client has no checksum.
	Behind bool
	// Only names the cases that run; empty: all. Skip has a reason for each case that does not; OtherBuckets and
	// NotWithVersitygw are made for it.
	Only []string
	Skip map[string]string
}

// Case is a sequence of requests on keys that no other case uses.
type Case struct {
	Name string
	// Cannot has the clients that cannot send these requests, with the reason.
	Cannot map[Client]string

	run func(*attempt)
}

// OtherBuckets are the cases about other buckets, for Env.Skip.
var OtherBuckets = map[string]string{
	"bucket that does not exist": "an endpoint need not tell which buckets there are, so its codes may be others",
}

// NotWithVersitygw are the cases that fail now and then with versitygw 1.8.0, for Env.Skip.
var NotWithVersitygw = map[string]string{
	"large body that is refused": "it closes the connection before it has read the body, and the answer can get lost",
	"body in chunks with a trailer": "it does not read the last of HTTP's own chunks, and answers it like a request, " +
		"so that the connection's next one can fail",
}

// Results are those of one client, by case.
type Results map[string]Result

// Result is what a client got in one case.
type Result struct {
	// Got are the answers in the order of the requests, without times, IDs and the run's prefix of keys.
	Got []any
	// Wrong are the answers that no S3 store should give.
	Wrong []string
	// Error says why the case ended early.
	Error string
}

const (
	// caseTimeout is many times what the CLI's longest case takes.
	caseTimeout = 3 * time.Minute
	// cliCases is how many cases the CLI runs at a time: it computes most of the time.
	cliCases = 2
	// waitDelay is how long the output of a process that has been killed is awaited.
	waitDelay = 5 * time.Second
)

// Run runs the cases with one client. The error says that they could not be run; what the client got is in Results.
func Run(ctx context.Context, client Client, env Env) (_ Results, err error) {
	if env.Command == nil {
		env.Command = exec.CommandContext
	}
	if env.BinDir, err = filepath.Abs(env.BinDir); err != nil {
		return nil, err
	}
	for _, name := range slices.AppendSeq(slices.Clone(env.Only), maps.Keys(env.Skip)) {
		if !slices.ContainsFunc(Cases, func(c Case) bool { return c.Name == name }) {
			return nil, fmt.Errorf("no case %q", name)
		}
	}
	dir, err := os.MkdirTemp("", "sdks-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := prepare(dir, env.BinDir); err != nil {
		return nil, err
	}
	caller := newCaller(client, env, dir)
	defer caller.end()
	var group errgroup.Group
	group.SetLimit(1) // a driver answers one request after the other
	if client == CLI {
		group.SetLimit(cliCases)
	}
	var mu sync.Mutex
	results, prefix := Results{}, newPrefix()
	for _, c := range Cases {
		if c.Cannot[client] != "" || env.Skip[c.Name] != "" || len(env.Only) > 0 && !slices.Contains(env.Only, c.Name) {
			continue
		}
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r := runCase(ctx, c, &attempt{client: client, env: env, dir: dir, prefix: prefix, caller: caller})
			mu.Lock()
			defer mu.Unlock()
			results[c.Name] = r
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return results, fmt.Errorf("after %d cases: %w", len(results), err)
	}
	return results, nil
}

func runCase(ctx context.Context, c Case, a *attempt) Result {
	var cancel context.CancelFunc
	a.ctx, cancel = context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	c.run(a)
	return a.result
}

// Difference is a case in which a client got something else from the endpoint than from the store, or that failed.
type Difference struct{ Case, Text string }

func (d Difference) String() string { return fmt.Sprintf("%s: %s", d.Case, d.Text) }

// Compare returns the cases with different results, and those that failed or are missing, in the order of Cases.
func Compare(store, endpoint Results) []Difference {
	return compare(func(name string) (texts []string) {
		s, inStore := store[name]
		e, inEndpoint := endpoint[name]
		switch {
		case inStore != inEndpoint:
			return []string{fmt.Sprintf("the store has a result: %t, the endpoint: %t", inStore, inEndpoint)}
		case s.Error != "" || e.Error != "":
			return []string{fmt.Sprintf("the case ended early\n\tstore:    %s\n\tendpoint: %s", s.Error, e.Error)}
		}
		for i := range max(len(s.Got), len(e.Got)) {
			texts = differ(texts, fmt.Sprintf("request %d", i+1), at(s.Got, i), at(e.Got, i))
		}
		return texts
	})
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// differ adds where two answers differ.
func differ(texts []string, path string, store, endpoint any) []string {
	s, sIsMap := store.(M)
	e, eIsMap := endpoint.(M)
	sList, sIsList := store.([]any)
	eList, eIsList := endpoint.([]any)
	switch {
	case sIsMap && eIsMap:
		for _, name := range slices.Sorted(maps.Keys(with(s, e))) {
			texts = differ(texts, path+" "+name, s[name], e[name])
		}
	case sIsList && eIsList:
		for i := range max(len(sList), len(eList)) {
			texts = differ(texts, fmt.Sprintf("%s[%d]", path, i), at(sList, i), at(eList, i))
		}
	case !reflect.DeepEqual(store, endpoint):
		texts = append(texts, fmt.Sprintf("%s\n\tstore:    %v\n\tendpoint: %v", path, store, endpoint))
	}
	return texts
}

// Check returns the cases in which the client got what no S3 store should give.
func Check(results Results) []Difference {
	return compare(func(name string) []string {
		r := results[name]
		if r.Error != "" {
			return append(r.Wrong, r.Error)
		}
		return r.Wrong
	})
}

func compare(texts func(name string) []string) (found []Difference) {
	for _, c := range Cases {
		if t := texts(c.Name); len(t) > 0 {
			found = append(found, Difference{c.Name, strings.Join(t, "\n")})
		}
	}
	return found
}
