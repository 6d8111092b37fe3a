package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
)

// config is what the flags say.
type config struct {
	stateDir, runDir, secretsDir string
	controlPlane, controlName    string
	cert, key, ca                string
	containerd, cniPlugins       string
	bridge                       string
	podSubnet                    string
	peerListen, metricsListen    string
	bufferLimit                  int64
	otlp, logLevel               string
}

// check says what is wrong with the flags, all at once.
func (c config) check() error {
	var errs []error
	wrong := func(flag, value, use string) { errs = append(errs, fmt.Errorf("--%s %q: use %s", flag, value, use)) }
	// Containerd, the shims and Envoy get paths below them.
	for flag, dir := range map[string]string{"state-dir": c.stateDir, "run-dir": c.runDir} {
		if !filepath.IsAbs(dir) {
			wrong(flag, dir, "an absolute path")
		}
	}
	if !isAddress(c.controlPlane) {
		wrong("control-plane", c.controlPlane, "host:port")
	}
	// Other nodes dial it as it is here.
	if a, err := netip.ParseAddrPort(c.peerListen); err != nil || a.Port() == 0 || a.Addr().IsUnspecified() {
		wrong("peer-listen", c.peerListen, "the ip:port where other nodes reach this one, such as 10.201.0.11:7443")
	}
	if c.metricsListen != "" && !isAddress(c.metricsListen) {
		wrong("metrics-listen", c.metricsListen, "ip:port, or nothing for no metrics")
	}
	if c.bufferLimit <= 0 {
		wrong("buffer-limit", strconv.FormatInt(c.bufferLimit, 10), "a number of bytes above 0")
	}
	_, level := c.logger()
	_, subnet := c.subnet()
	return errors.Join(append(errs, level, subnet)...)
}

func isAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	return err == nil && port != ""
}

func (c config) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", c.logLevel)
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})), nil
}

func (c config) subnet() (netip.Prefix, error) {
	p, err := netip.ParsePrefix(c.podSubnet)
	if err != nil {
		return p, fmt.Errorf("--pod-subnet %q: use an address range such as 10.201.1.0/24", c.podSubnet)
	}
	return p, nil
}

func (c config) socket(name string) string { return filepath.Join(c.runDir, name) }
func (c config) state(name string) string  { return filepath.Join(c.stateDir, name) }
