package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

const (
	// ahead is how long before its end an authority gets a successor.
	ahead = 365 * 24 * time.Hour
	// announced is how long a successor is trusted before it signs. Kubelets take about two minutes to show a changed
	// ConfigMap to the daemons.
	announced = 10 * time.Minute
	// overlap is how long an authority is trusted after its last signature: until the last certificate ends.
	overlap = Lifetime + time.Hour
	// followEvery is how soon a replica hears of what another replica or an operator has written.
	followEvery = 2 * time.Second
)

// advance is the next step of a rotation, if it is time for one: a successor is made, then it signs, then the authority
// before it is no longer trusted.
func (m Material) advance(now time.Time) (next Material, changed bool, err error) {
	trusted, err := certificates(m.Certificate)
	if err != nil {
		return m, false, err
	}
	next = m
	switch {
	case len(m.NextCertificate) > 0:
		successor, err := certificates(m.NextCertificate)
		if err != nil {
			return m, false, fmt.Errorf("the next authority: %w", err)
		}
		if now.Before(successor[0].NotBefore.Add(clockSlack + announced)) {
			return m, false, nil
		}
		next.Certificate, next.Key = slices.Concat(m.NextCertificate, m.Certificate), m.NextKey
		next.NextCertificate, next.NextKey, next.Since = nil, nil, now.UTC().Format(time.RFC3339)
	case m.Rotate || now.After(trusted[0].NotAfter.Add(-ahead)):
		made, err := generate()
		if err != nil {
			return m, false, err
		}
		next.NextCertificate, next.NextKey, next.Rotate = made.Certificate, made.Key, false
	case len(trusted) > 1:
		since, err := time.Parse(time.RFC3339, m.Since)
		if err != nil || now.Before(since.Add(overlap)) {
			return m, false, err
		}
		next.Certificate = encode("CERTIFICATE", trusted[0].Raw)
	default:
		return m, false, nil
	}
	return next, true, nil
}

// Revocations say which nodes are revoked.
type Revocations interface {
	Revoked(ctx context.Context) ([]string, error)
}

// Refresh takes what the store keeps now, with the next step of a rotation if it is time, and the revoked nodes. It
// returns these.
func (a *Authority) Refresh(ctx context.Context, store Store, list Revocations) (revoked []string, err error) {
	m, err := store.Load(ctx)
	if err != nil {
		return nil, err
	}
	next, changed, err := m.advance(time.Now())
	if err != nil {
		return nil, fmt.Errorf("rotating the certificate authority: %w", err)
	}
	if changed {
		if err := store.Replace(ctx, next); err != nil && !errors.Is(err, ErrExists) {
			return nil, err
		}
		if m, err = store.Load(ctx); err != nil { // or another replica's step
			return nil, err
		}
	}
	s, err := parse(m)
	if err != nil {
		return nil, fmt.Errorf("the kept certificate authority is not usable: %w", err)
	}
	a.use(s)
	if err := store.Publish(ctx, s.pem); err != nil {
		return nil, err
	}
	if revoked, err = list.Revoked(ctx); err != nil {
		return nil, err
	}
	a.revoke(revoked)
	return revoked, nil
}

// use has s sign from now on.
func (a *Authority) use(s signer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if bytes.Equal(a.signer.pem, s.pem) {
		return
	}
	if !a.signer.cert.Equal(s.cert) {
		a.serving = nil
	}
	a.signer = s
}

// Follow refreshes until ctx ends.
func (a *Authority) Follow(ctx context.Context, store Store, list Revocations, log *slog.Logger) {
	var told []string
	failing := false
	for {
		within, cancel := context.WithTimeout(ctx, reviewTimeout)
		revoked, err := a.Refresh(within, store, list)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			log.Error("authority and revoked nodes stay as they are", "error", err)
		case err == nil && !slices.Equal(told, revoked):
			log.Warn("revoked nodes", "nodes", revoked)
			told = revoked
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(followEvery):
		}
	}
}
