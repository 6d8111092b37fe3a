package peers_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const blocks = 4

func (n *node) check(t *testing.T) {
	t.Helper()
	if got, err := n.fetch(t); err != nil || !bytes.Equal(got, n.origin.body) {
		t.Errorf("%s has %d bytes, error %v", n.name, len(got), err)
	}
}

// Of 50 nodes that want an object at once one asks the store, whatever the object's size.
func TestOneNodeAsksTheStore(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "small": 1000, "one block": digest.Block, "some blocks": 3*digest.Block + 17} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, size, 50)
			var all sync.WaitGroup
			for _, n := range s.nodes {
				all.Go(func() { n.check(t) })
			}
			all.Wait()
			if n := s.origin.count(); n != 1 {
				t.Errorf("the store was asked %d times", n)
			}
		})
	}
}

// The owner serves two at a time, and refers the others to those.
func TestTheOwnerServesTwo(t *testing.T) {
	s := newSite(t, blocks*digest.Block, 8)
	s.origin.step = make(chan struct{})
	var all sync.WaitGroup
	for i := 1; i < 8; i++ {
		if _, err := s.by(i).begin(t, ""); err != nil {
			t.Fatal(err)
		}
	}
	close(s.origin.step)
	for i := range 8 {
		all.Go(func() { s.by(i).await(t, blocks) })
	}
	all.Wait()
	if bytes, referrals := s.by(0).answers(t); bytes != 2 || referrals != 5 {
		t.Errorf("the owner serves %d and refers %d", bytes, referrals)
	}
	if n := s.origin.count(); n != 1 {
		t.Errorf("the store was asked %d times", n)
	}
}

// answers is how many questions the node has answered, once they are over, by bytes and by referrals.
func (n *node) answers(t *testing.T) (bytes, referrals int) {
	n.kill()
	const metric = "headstart_peer_answers_total"
	return n.counts(t, metric, "Bytes"), n.counts(t, metric, "Referral")
}

// If the owner ends midway the second choice goes on where it has ended.
func TestTheOwnerEndsMidway(t *testing.T) {
	for name, wanted := range map[string]int{"served by the owner": 1, "referred by the owner": 3} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, blocks*digest.Block, 8)
			s.origin.step = make(chan struct{})
			for i := range wanted {
				if _, err := s.by(2+i).begin(t, ""); err != nil {
					t.Fatal(err)
				}
			}
			s.origin.step <- struct{}{}
			for i := range wanted {
				s.by(2+i).await(t, 1)
			}
			s.by(0).kill()
			close(s.origin.step)
			for i := range wanted {
				s.by(2+i).await(t, blocks)
				s.by(2 + i).check(t)
			}
			if n := s.origin.count(); n != 2 {
				t.Errorf("the store was asked %d times", n)
			}
		})
	}
}

// An object that has changed when the owner ends midway is an error, and never a mixture.
func TestVersionsAreNotMixed(t *testing.T) {
	s := newSite(t, blocks*digest.Block, 3)
	step := make(chan struct{})
	defer close(step)
	s.origin.step = step
	e, err := s.by(2).begin(t, "")
	if err != nil {
		t.Fatal(err)
	}
	step <- struct{}{}
	s.by(2).await(t, 1)
	s.origin.mu.Lock()
	s.origin.version, s.origin.step = "v2", nil
	s.origin.mu.Unlock()
	s.by(0).kill()
	if _, _, err := e.Block(t.Context(), 1); problem.ReasonOf(err) != problem.ReasonInputChanged {
		t.Errorf("error %v", err)
	}
}

// said is a handler that answers like this, and then no more until the asker has gone.
func said(frames ...[]byte) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		for _, f := range frames {
			_, _ = w.Write(f)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}
}

func frame(kind byte, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body))), body...)
}

// A node that cannot be reached, says nothing, knows other members, or sends something wrong costs no request. It is
// counted why.
func TestTheSecondChoiceAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(s *site)
		reason string
		hasty  bool
	}{
		"the owner is gone":      {func(s *site) { s.by(0).kill() }, "Failed", false},
		"the owner says nothing": {func(s *site) { s.by(0).before = said() }, "Silent", true},
		"the owner stops": {func(s *site) {
			body := s.origin.body[:digest.Block]
			sum := digest.OfBlock(body)
			s.by(0).before = said(frame('o', fmt.Appendf(nil, `{"size":%d,"version":"v1"}`, len(s.origin.body))...),
				frame('b', append(sum[:], body...)...))
		}, "Silent", true},
		"the owner stops amid a frame": {func(s *site) { s.by(0).before = said([]byte("o\x00\x00\x00\x7f{")) }, "Silent", true},
		"the owner talks nonsense": {func(s *site) {
			s.by(0).before = said(bytes.Repeat([]byte("x"), 1<<20))
		}, "Failed", false},
		"the owner has other members": {func(s *site) {
			s.tell(s.by(0).name, &nodeapi.Neighbour{Node: s.by(1).name}, &nodeapi.Neighbour{Node: s.by(2).name})
		}, "PeerMembersDiffer", false},
		"the owner flips a byte": {func(s *site) { s.by(0).lies = true }, "Lied", false},
		"the owner has another node's address": {func(s *site) {
			for _, m := range s.members {
				if m.GetNode() == s.by(0).name {
					m.PeerAddress = s.address(s.by(1))
				}
			}
			s.tell(s.by(2).name, s.members...)
			s.tell(s.by(3).name, s.members...)
		}, "Failed", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, blocks*digest.Block, 4)
			c.spoil(s)
			if c.hasty {
				s.by(2).peers.Hasty()
				s.by(3).peers.Hasty()
			}
			s.by(3).check(t)
			// One that is hasty may be so with the second choice, too.
			if n := s.by(3).failures(t, c.reason); n == 0 || n > 1 && !c.hasty {
				t.Errorf("%s was counted %d times", c.reason, n)
			}
			before := s.origin.count()
			s.by(2).check(t)
			if bytes, _ := s.by(1).answers(t); bytes == 0 || s.origin.count() > before+1 {
				t.Errorf("the second choice has served %d, and the store was asked %d times", bytes, s.origin.count())
			}
		})
	}
}

// Without any choice the store is asked, as if there were no peers.
func TestTheStoreIsTheLastChoice(t *testing.T) {
	for name, spoil := range map[string]func(s *site){
		"alone":            func(s *site) { s.tell(s.by(2).name, s.members[0]) },
		"both are gone":    func(s *site) { s.by(0).kill(); s.by(1).kill() },
		"both flip a byte": func(s *site) { s.by(0).lies, s.by(1).lies = true, true },
		"no pass":          func(s *site) { s.by(2).peers.SetPasses(&nodeapi.Passes{}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, blocks*digest.Block, 3)
			spoil(s)
			s.by(2).check(t)
		})
	}
}

// A wrong block is counted for whoever sent it, and the node that sent it is asked no more. Its digest may be wrong as
// well: the owner's counts.
func TestAttackAPeerLies(t *testing.T) {
	for name, cunning := range map[string]bool{"a flipped byte": false, "with the digest of that": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, blocks*digest.Block, 6)
			s.origin.step = make(chan struct{})
			s.by(2).lies, s.by(2).cunning = true, cunning
			for i := 2; i < 5; i++ { // the last one is referred to the first, which lies
				if _, err := s.by(i).begin(t, ""); err != nil {
					t.Fatal(err)
				}
			}
			close(s.origin.step)
			s.by(4).await(t, blocks)
			s.by(4).check(t)
			if n := s.by(4).failures(t, "Lied"); n != 1 {
				t.Errorf("%d lies were counted", n)
			}
		})
	}
}

// A node that has the version of now gets no bytes.
func TestAnObjectThatHasNotChanged(t *testing.T) {
	s := newSite(t, 1000, 3)
	s.by(2).check(t)
	_, err := s.by(1).begin(t, "v1")
	if same, is := errors.AsType[*source.Unchanged](err); !is || same.Fresh != time.Minute {
		t.Errorf("error %v", err)
	}
	s.origin.mu.Lock()
	s.origin.version, s.origin.body = "v2", []byte("another one")
	s.origin.mu.Unlock()
	s.by(2).check(t)
	if n := s.origin.count(); n != 2 {
		t.Errorf("the store was asked %d times", n)
	}
}

// What the caller of Fetch refuses it gets back, and nobody else is asked.
func TestTheCallersErrorIsItsOwn(t *testing.T) {
	s := newSite(t, 1000, 3)
	tooLarge := errors.New("too large")
	err := s.by(2).peers.Fetch(fair.For(t.Context(), namespace), key, "", func(o source.Object) (io.WriterAt, error) {
		if o.From != s.by(0).name || o.Size != 1000 {
			t.Errorf("begun with %+v", o)
		}
		return nil, tooLarge
	}, nil)
	if !errors.Is(err, tooLarge) || s.origin.count() != 1 {
		t.Errorf("error %v, and the store was asked %d times", err, s.origin.count())
	}
}
