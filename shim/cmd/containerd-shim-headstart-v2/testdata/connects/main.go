// Command connects connects to addresses and says what it hears there, and how long connecting took at the median.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"time"
)

// result is what came of an address.
type result struct {
	Said   string
	First  float64 // in microseconds
	Micros float64
	Wrong  int // connections that said something else than the first one
}

func main() {
	times, _ := strconv.Atoi(os.Args[1])
	all := map[string]result{}
	for _, address := range os.Args[2:] {
		var r result
		var took []time.Duration
		for range times {
			began := time.Now()
			c, err := net.DialTimeout("tcp", address, 2*time.Second)
			took = append(took, time.Since(began))
			said := fmt.Sprint(err)
			if err == nil {
				said = hear(c)
			}
			if r.Said == "" {
				r.Said = said
			}
			if said != r.Said {
				r.Wrong++
			}
		}
		r.First = float64(took[0].Nanoseconds()) / 1000
		slices.Sort(took)
		r.Micros = float64(took[len(took)/2].Nanoseconds()) / 1000
		all[address] = r
	}
	_ = json.NewEncoder(os.Stdout).Encode(all)
	_, _ = io.ReadAll(os.Stdin)
}

// hear says something first, so that a connection that epoll forgot is noticed, and reads in parts with a deadline.
func hear(c net.Conn) string {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte("?")); err != nil {
		return err.Error()
	}
	b, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
