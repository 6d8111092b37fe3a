package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/input"
	"github.com/headstart-mesh/headstart/e2e/functions/service"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
)

// newHandler answers /healthz, and any other path with what is in the request's video.
func newHandler(in *input.Reader, every int) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), service.RequestTimeout)
		defer cancel()

		start := time.Now()
		video, err := in.Read(r.WithContext(ctx))
		if err != nil {
			fail(w, err)
			return
		}
		defer video.Close()
		read := time.Now()
		answer, err := analyse(video.Data, every)
		if err != nil {
			fail(w, err)
			return
		}
		step.SetTiming(w.Header(), read.Sub(start), string(video.From), time.Since(read))
		write(w, http.StatusOK, answer)
	})
	return mux
}

// fail answers with an error. Only what is the caller's matter is told; the log has all.
func fail(w http.ResponseWriter, err error) {
	status, message := http.StatusInternalServerError, "internal error"
	if refusal := new(input.Refusal); errors.As(err, &refusal) {
		status, message = refusal.Status, refusal.Message
	} else if errors.Is(err, errNoVideo) {
		status, message = http.StatusUnprocessableEntity, err.Error()
	}
	slog.Error("request failed", "status", status, "error", err)
	write(w, status, struct {
		Error string `json:"error"`
	}{message})
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The caller is gone if this fails; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(body)
}
