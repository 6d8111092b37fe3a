// Command chain is a sample function of a workflow's that stands for work without doing any: it waits for about WORK (9ms), and answers
// a way to go. It starts for START. The way is x, but for the share miss=N of its baggage (W3C) of the requests with {"branch": true}: then it is y.
package main

import (
	"context"
	"encoding/json"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/service"
)

const (
	// work is the share of FaaSChain's functions in the time of its applications (SpecFaaS, figure 3 and table I).
	work = 9 * time.Millisecond
	// jitter is the standard deviation of the work, as a share of it.
	jitter = 0.1
	// took is the answer's header with how long the work took.
	took = "X-Took"
)

func main() {
	typical, err := time.ParseDuration(os.Getenv("WORK"))
	if err != nil {
		typical = work
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		var said struct {
			Branch bool `json:"branch"`
		}
		if err := json.NewDecoder(r.Body).Decode(&said); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case <-time.After(time.Duration(float64(typical) * (1 + jitter*rand.NormFloat64()))):
		case <-r.Context().Done():
			return
		}
		way := "x"
		miss, _ := strconv.ParseFloat(strings.TrimPrefix(r.Header.Get("Baggage"), "miss="), 64) // 0 if it is none
		if said.Branch && rand.Float64() < miss {
			way = "y"
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(took, time.Since(began).String())
		_ = json.NewEncoder(w).Encode(map[string]string{"way": way}) // the caller is gone if this fails
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := service.Run(ctx, os.Getenv, "START", http.DefaultServeMux); err != nil {
		log.Fatal(err)
	}
}
