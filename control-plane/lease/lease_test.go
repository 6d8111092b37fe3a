package lease_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/headstart-mesh/headstart/control-plane/lease"
)

const namespace = "headstart-system"

// cluster is an API server that has the chart's empty Lease, and may be away.
type cluster struct {
	client *fake.Clientset
	mu     sync.Mutex
	away   bool
}

func newCluster() *cluster {
	c := &cluster{client: fake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: lease.Name}})}
	c.client.PrependReactor("*", "leases", func(kubetesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.away {
			return true, nil, errors.New("the API server is away")
		}
		return false, nil, nil
	})
	return c
}

func (c *cluster) set(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = away
}

// candidate is one control plane.
type candidate struct {
	*lease.Lease
	terms int // that have begun
	// atEnd is called when a term has ended, before work returns.
	atEnd func()
	stop  func()
}

func (c *cluster) candidate(t *testing.T, name string) *candidate {
	d := &candidate{Lease: lease.New(c.client, namespace, name, slog.New(slog.DiscardHandler)), atEnd: func() {}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.Run(ctx, func(ctx context.Context) {
			d.terms++
			<-ctx.Done()
			d.atEnd()
		}); err != nil {
			t.Error(err)
		}
	}()
	d.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(d.stop)
	return d
}

// after lets time go by, in which at no moment two hold the lease.
func after(t *testing.T, d time.Duration, all ...*candidate) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second / 4) {
		synctest.Wait()
		held := 0
		for _, c := range all {
			if c.Held() {
				held++
			}
		}
		if held > 1 {
			t.Fatal("two hold the lease")
		}
	}
	synctest.Wait()
}

// The next one takes over at once when the holder ends, with its work done.
func TestTheLeaseIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		first := c.candidate(t, "first")
		after(t, time.Second, first)
		second := c.candidate(t, "second")
		first.atEnd = func() {
			if time.Sleep(time.Second); second.Held() {
				t.Error("the second one begins before the first one has ended")
			}
		}
		after(t, time.Minute, first, second)
		if !first.Held() || second.Held() {
			t.Fatalf("first %t, second %t", first.Held(), second.Held())
		}
		go first.stop()
		after(t, 6*time.Second, first, second)
		if first.Held() || !second.Held() || first.terms != 1 || second.terms != 1 {
			t.Errorf("first %t, second %t; %d and %d terms", first.Held(), second.Held(), first.terms, second.terms)
		}
		second.stop()
	})
}

// What applies the chart may leave its Lease out: then a control plane makes it.
func TestALeaseIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		if err := c.client.CoordinationV1().Leases(namespace).Delete(t.Context(), lease.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		first := c.candidate(t, "first")
		after(t, 25*time.Second, first)
		if first.Held() {
			t.Error("it is made before others could")
		}
		after(t, 10*time.Second, first)
		if !first.Held() {
			t.Error("nobody has it")
		}
		first.stop()
	})
}

// A holder that cannot renew ends its work; it or another one holds the lease when the API
// server is back.
func TestTheLeaseIsLostWithTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		first := c.candidate(t, "first")
		after(t, time.Second, first)
		second := c.candidate(t, "second")
		after(t, time.Minute, first, second)
		c.set(true)
		after(t, 15*time.Second, first, second)
		if first.Held() || second.Held() {
			t.Errorf("while the API server is away: first %t, second %t", first.Held(), second.Held())
		}
		c.set(false)
		after(t, 30*time.Second, first, second)
		if first.Held() == second.Held() || first.terms+second.terms != 2 {
			t.Errorf("when it is back: first %t, second %t; %d and %d terms", first.Held(), second.Held(), first.terms, second.terms)
		}
		first.stop()
		second.stop()
	})
}
