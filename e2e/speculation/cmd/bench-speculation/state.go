package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cache"
	query "github.com/headstart-mesh/headstart/e2e/functions/query/image"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/speculation"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
	// destination is the Redis that programs find at their sockets, at this port.
	destination = "state"
	redisPort   = 7080
	// password is the server's, which is there for the benchmark.
	password = "of-the-server-only"
	// asks is how many requests a repetition has: each is a GET, which takes a hundredth of what another part's request takes.
	asks = 10
)

// destinations is the operator's list, and its secrets.
func destinations(c testbed.Config) (list string, secrets map[string]string, err error) {
	at, err := c.ServerAddress(redisPort)
	return fmt.Sprintf("- {name: %s, origin: node, redis: {address: %q, user: app, credentialsSecret: app}}\n", destination, at),
		map[string]string{"app": "password = " + password + "\n"}, err
}

// state measures a program's GET in its turn: of a function that may run ahead, whose commands the daemon looks at, and of another one.
func (b *bench) state(ctx context.Context, part *speculation.Part) error {
	at, err := b.config.ServerAddress(redisPort)
	if err != nil {
		return err
	}
	server, err := testbed.StartRedis(ctx, testbed.RedisConfig{DataDir: filepath.Join(b.config.WorkDir, "redis-state"),
		LogFile: filepath.Join(b.bed.LogDir(), "redis-state.log"), Namespace: b.bed.ServerNamespace(), Address: at, User: "app", Password: password})
	if err != nil {
		return err
	}
	defer server.Close(context.WithoutCancel(ctx))
	archive, err := query.Build(b.Bin, nil)
	if err == nil {
		err = b.bed.Import(ctx, archive)
	}
	if err != nil {
		return err
	}
	ways := []struct{ name, column, speculation string }{{"state-joined", "joined us", "never"}, {"state-ahead", "in turn us", "allowed"}}
	var functions []testbed.Function
	for _, way := range ways {
		functions = append(functions, testbed.Function{Name: way.name, Image: query.Ref, Node: testbed.Edge,
			Annotations: map[string]string{filterapi.AnnotationScaleToZero: "1h", filterapi.AnnotationSpeculation: way.speculation},
			Template:    map[string]string{filterapi.AnnotationConnections: destination},
			Env:         map[string]string{"REDIS_URL": "unix:///headstart/socket/" + destination + "/redis.sock"}})
	}
	if err := b.bed.Apply(ctx, functions...); err != nil {
		return err
	}
	result.Progress("a GET in its turn")
	took := make([][]time.Duration, len(ways))
	for n := range warmUps + asks*b.Repetitions {
		for i, way := range ways {
			one, err := b.get(ctx, way.name)
			if err != nil {
				return err
			}
			if n >= warmUps {
				took[i] = append(took[i], one)
			}
		}
	}
	p := cache.Point{Case: "GET"}
	for i, way := range ways {
		slices.Sort(took[i])
		p.Values = append(p.Values, cache.Value{Name: way.column, Value: float64(took[i][len(took[i])/2]) / float64(time.Microsecond)})
	}
	part.Points = append(part.Points, p)
	part.Figures[speculation.StateAdded] = p.Values[1].Value - p.Values[0].Value
	return nil
}

// get has a function get a key, and returns how long that took.
func (b *bench) get(ctx context.Context, function string) (time.Duration, error) {
	r, err := b.bed.Request(ctx, http.MethodPost, testbed.Edge, function, "/redis?q=GET+key")
	if err != nil {
		return 0, err
	}
	a, err := testbed.Do(r)
	switch {
	case err != nil:
		return 0, err
	case a.Code != http.StatusOK || !strings.Contains(string(a.Body), `"redis: nil"`):
		return 0, fmt.Errorf("%s answers %d: %s", function, a.Code, a.Body)
	}
	return time.ParseDuration(a.Header.Get(tookHeader))
}
