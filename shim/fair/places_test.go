package fair_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/fair"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wait waits for a place, and notes who got one.
func wait(t *testing.T, places *fair.Places, function string, got chan string, leave chan func()) {
	t.Helper()
	go func() {
		l, err := places.Wait(fair.For(t.Context(), function))
		if err != nil {
			t.Error(err)
		}
		got <- fair.Namespace(function)
		leave <- l
	}()
	synctest.Wait()
}

// A namespace with many that wait does not keep another one waiting: that is served first, until it has
// as much.
func TestPlacesGoAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := fair.NewPlaces(9)
		got, leave := make(chan string, 100), make(chan func(), 100)
		for n := range 20 {
			wait(t, places, fmt.Sprintf("flood/f%d", n), got, leave)
		}
		if len(got) != 7 {
			t.Fatalf("alone it has %d places", len(got))
		}
		for range 6 {
			wait(t, places, "small/one", got, leave)
		}
		if len(got) != 8 {
			t.Errorf("with one that comes late there are %d", len(got))
		}
		for range 8 {
			<-got
		}
		var order string
		for len(leave) > 0 {
			(<-leave)()
			synctest.Wait()
			for len(got) > 0 {
				order += (<-got)[:1]
			}
		}
		if order[:3] != "sss" || len(order) != 13+5 {
			t.Errorf("places go to %s", order)
		}
	})
}

// While two namespaces attend, each has as many places as the other, however many it wants. Alone a namespace has its
// whole share, also afterwards.
func TestEqualPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := fair.NewEqualPlaces(100, 3, 0)
		got, leave := make(chan string, 100), make(chan func(), 100)
		defer places.Attend(fair.For(t.Context(), "flood/f"))()
		wait(t, places, "flood/f", got, leave)
		ends := places.Attend(fair.For(t.Context(), "small/one"))
		for n := range 90 {
			wait(t, places, fmt.Sprintf("flood/f%d", n), got, leave)
		}
		if len(got) != 3 {
			t.Errorf("beside another it has %d", len(got))
		}
		wait(t, places, "small/one", got, leave)
		if len(got) != 4 {
			t.Errorf("the other has %d", len(got)-3)
		}
		ends()
		synctest.Wait()
		if len(got) < 70 {
			t.Errorf("alone again it has %d", len(got))
		}
		for range 92 {
			(<-leave)()
		}
	})
}

// Those of a namespace that have no place come before those that want a second one, also if they come later, and of
// second places there are fewer.
func TestExtraPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := fair.NewEqualPlaces(6, 0, 4) // a namespace alone has 4, of which 3 are extra
		got, leave := make(chan string, 10), make(chan func(), 10)
		take := func(kind string, wait func(context.Context) (func(), error)) {
			go func() {
				l, err := wait(fair.For(t.Context(), "a/f"))
				if err != nil {
					t.Error(err)
				}
				got <- kind
				leave <- l
			}()
			synctest.Wait()
		}
		for range 5 {
			take("extra", places.WaitExtra)
		}
		if len(got) != 3 {
			t.Errorf("it has %d extra ones", len(got))
		}
		take("own", places.Wait)
		if len(got) != 4 {
			t.Errorf("with one of its own it has %d", len(got))
		}
		take("own", places.Wait)
		for range 4 {
			<-got
		}
		(<-leave)()
		if next := <-got; next != "own" {
			t.Errorf("next is one that is %s", next)
		}
		for range 6 {
			(<-leave)()
		}
	})
}

// Who does not wait any more takes no place, also when it was served at that moment.
func TestWhoLeavesTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := fair.NewPlaces(2) // one of a namespace
		leave, err := places.Wait(fair.For(t.Context(), "a/f"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(fair.For(t.Context(), "a/g"))
		left := make(chan error)
		go func() { _, err := places.Wait(ctx); left <- err }()
		synctest.Wait()
		why := errors.New("enough")
		cancel(why)
		if err := <-left; !errors.Is(err, why) {
			t.Error(err)
		}
		go func() {
			l, err := places.Wait(ctx)
			if err == nil {
				l()
			}
			left <- err
		}()
		leave()
		<-left
		leave, err = places.Wait(fair.For(t.Context(), "a/h"))
		if err != nil {
			t.Fatal(err)
		}
		leave()
	})
}
