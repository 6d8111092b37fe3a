//go:build integration

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/advice"
	"github.com/headstart-mesh/headstart/control-plane/history/historytest"
)

// Two control planes tell the same of replicas, and two daemons count each their own.
func TestReport(t *testing.T) {
	now, text := time.Now(), map[string]*strings.Builder{}
	sample := func(name, labels string, ago int, value float64) {
		if text[name] == nil {
			text[name] = &strings.Builder{}
			fmt.Fprintf(text[name], "# TYPE %s gauge\n", strings.TrimSuffix(name, "_total"))
		}
		fmt.Fprintf(text[name], "%s{%s} %v %d\n", name, labels, value, now.Add(time.Duration(-ago)*time.Minute).Unix())
	}
	for _, pod := range []string{"a", "b"} {
		of := func(labels string) string {
			return strings.Trim(fmt.Sprintf("job=\"headstart\",instance=%q,", pod)+labels, ",")
		}
		for ago := 120; ago >= 0; ago-- {
			sample("up", of(""), ago, 1)
			away := 0.0
			if ago > 40 && ago <= 100 {
				away = 3
			}
			sample("headstart_withdrawn_replicas", of(`function="shop/cart"`), ago, away)
			if ago > 60 {
				continue // its first cold start was an hour ago
			}
			sample("headstart_cold_start_seconds_count", of(`function="shop/cart",phase="start"`), ago, 1)
			sample("headstart_cold_start_seconds_sum", of(`function="shop/cart",phase="start"`), ago, 2.5)
			sample("headstart_cold_start_seconds_sum", of(`function="shop/cart",phase="input"`), ago, 1.5)
			sample("headstart_cold_start_saved_seconds_total", of(`function="shop/cart"`), ago, 1.25)
			sample("headstart_cold_start_saved_seconds_total", of(`function="other/job"`), ago, 10)
		}
	}
	var all strings.Builder
	for _, one := range text {
		all.WriteString(one.String())
	}
	prometheus := historytest.Start(t, all.String())
	config := kubeconfig(t, &backend{})
	stdout, _, err := headstart(t, "", "report", "--kubeconfig", config, "--prometheus", prometheus, "-o", "json")
	var got report
	if err == nil {
		err = json.Unmarshal([]byte(stdout), &got)
	}
	if err != nil || len(got.Functions) != 2 {
		t.Fatal(stdout, err)
	}
	if idle := got.Functions[0].IdleReplicaSeconds; math.Abs(idle-3*3600) > 3*60 {
		t.Errorf("three replicas were away for an hour, not for %v s", idle)
	}
	got.Functions[0].IdleReplicaSeconds = 0
	if d := cmp.Diff([]advice.Gained{{Function: "shop/cart", ColdStarts: 2, StartSeconds: 5, InputSeconds: 3, SavedSeconds: 2.5}, {Function: "other/job", SavedSeconds: 20}}, got.Functions); d != "" {
		t.Error(d)
	}
	stdout, _, err = headstart(t, "", "report", "--kubeconfig", config, "--prometheus", prometheus)
	if err != nil || !strings.Contains(stdout, "all ") || !strings.Contains(stdout, " 22.5s\n") || !strings.Contains(stdout, "Of the last ") {
		t.Error(stdout, err)
	}
	stdout, _, err = headstart(t, "", "report", "-n", "other", "--kubeconfig", config, "--prometheus", prometheus)
	if err != nil || strings.Contains(stdout, "shop/cart") || strings.Contains(stdout, "all ") || !strings.Contains(stdout, "other/job ") {
		t.Error(stdout, err)
	}
}
