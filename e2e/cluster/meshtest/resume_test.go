//go:build cluster

package meshtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
)

// A run whose daemon is killed goes on where it was, when the request comes again with its key: the next daemon has the notes.
func TestARunOutlivesItsDaemon(t *testing.T) {
	startRedis(t)
	through := ingressGateway(t)
	node := kubectl(t, "-n", through.namespace, "get", "pod", through.name, "-o", "jsonpath={.spec.nodeName}")
	f := stateful{"resume", plain, node, `["/query"]`, false}
	apply(t, f.manifest())
	readyPod(t, f.namespace, "app="+f.name)
	apply(t, strings.ReplaceAll(gatewayManifest, "NAMESPACE", strict))
	w := service{namespace: strict, name: "resumes", function: true}
	const redis = `call: http, with: {method: post, endpoint: 'http://resume.` + plain + `/redis?q=`
	applyWorkflow(t, w, `  - first: {`+redis+`INCR+resume:first'}}
  - slow: {`+redis+`BLPOP+resume:none+5'}}
  - last: {`+redis+`INCR+resume:last'}}
`)
	kubectl(t, "-n", w.namespace, "annotate", "service", w.name, "headstart.dev/state=sessions")
	ready(t, w, "True")
	known(t, through, w)
	query := func(ctx context.Context, words ...string) (string, error) {
		return asks(ctx, "asker", append([]string{"/usr/bin/redis-cli", "-h", redisHost}, words...)...)
	}
	const key = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	lost := make(chan error, 1)
	go func() {
		_, err := runOf(t.Context(), through, w, `{}`, key)
		lost <- err
	}()
	record := fmt.Sprintf("headstart:run:%s/%s:%x", w.namespace, w.name, sha256.Sum256([]byte(key)))
	eventually(t, "the first step counts", func(ctx context.Context) error {
		said, err := query(ctx, "HEXISTS", record, "call:1")
		if err == nil && said != "1" {
			err = fmt.Errorf("the record has it: %s", said)
		}
		return err
	})
	daemon := kubectl(t, "-n", world.System, "get", "pod", "-l", "app.kubernetes.io/name=headstart-node", "--field-selector", "spec.nodeName="+node, "-o", "name")
	kubectl(t, "-n", world.System, "delete", daemon, "--force", "--grace-period=0")
	if err := <-lost; err == nil {
		t.Fatal("the run was not lost")
	}
	var answer string
	eventually(t, "it goes on", func(ctx context.Context) (err error) {
		answer, err = runOf(ctx, through, w, `{}`, key)
		return err
	})
	if said, err := query(t.Context(), "MGET", "resume:first", "resume:last"); err != nil || said != "1\n1" {
		t.Errorf("the store has %q, %v", said, err)
	}
	if again, err := runOf(t.Context(), through, w, `{}`, key); err != nil || again != answer {
		t.Errorf("once more: %s, %v, want %s", again, err, answer)
	}
}
