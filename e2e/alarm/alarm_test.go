package alarm_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/e2e/alarm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *alarm.Alarm {
	t.Helper()
	a, err := alarm.New()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestItIsNeverEarly(t *testing.T) {
	a := open(t)
	defer a.Close()
	for _, d := range []time.Duration{-time.Second, 0, time.Microsecond, 300 * time.Microsecond, 3 * time.Millisecond, time.Millisecond} {
		began := time.Now()
		if err := a.Sleep(d); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < d {
			t.Errorf("%v of %v", took, d)
		}
	}
}

func TestCloseWakes(t *testing.T) {
	a := open(t)
	ended := make(chan error)
	go func() { ended <- a.Sleep(time.Hour) }()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if err := a.Sleep(time.Millisecond); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed, and asked again: %v", err)
	}
}
