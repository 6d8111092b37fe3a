// Command programs is what the suite of sandboxestest runs in sandboxes; its arguments
// say how it behaves.
package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	fmt.Println("GREETING is", os.Getenv("GREETING"))
	if complaint := os.Getenv("COMPLAINT"); complaint != "" {
		fmt.Fprintln(os.Stderr, complaint)
	}
	switch os.Args[1] {
	case "exit":
		code, err := strconv.Atoi(os.Args[2])
		check(err)
		os.Exit(code)
	case "fill":
		for all := [][]byte{}; ; {
			all = append(all, bytes.Repeat([]byte{1}, 1<<20))
		}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	}
	_, err := net.Listen("tcp", ":"+os.Args[2])
	check(err)
	<-ended
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
