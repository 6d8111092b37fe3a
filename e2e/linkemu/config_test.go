package linkemu

import (
	"strings"
	"testing"
	"time"
)

func TestOpenRefusesConfig(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"negative delay", func(c *Config) { c.Delay = -1 }, "delay -1ns is negative"},
		{"jitter above delay", func(c *Config) { c.Jitter = time.Second }, "jitter 1s is not between 0 and the delay 20ms"},
		{"negative wander", func(c *Config) { c.Wander = -1 }, "wander -1ns is negative"},
		{"negative rate", func(c *Config) { c.Rate = -1 }, "rate -1 bit/s is negative"},
		{"negative queue", func(c *Config) { c.QueueLimit = -1 }, "queue limit -1 is negative"},
		{"no device", func(c *Config) { c.A.Device = "" }, `device name ""`},
		{"long device", func(c *Config) { c.B.Device = "sixteen-letters-" }, `device name "sixteen-letters-"`},
		{"no prefix length", func(c *Config) { c.B.Address = "10.8.0.2" }, "address of device emu0"},
		{"no namespace", func(c *Config) { c.A.Namespace = "/nonexistent" }, "end A of the link: opening network namespace /nonexistent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Config{
				A:     End{Namespace: "/proc/self/ns/net", Device: "emu0", Address: "10.8.0.1/24"},
				B:     End{Namespace: "/proc/self/ns/net", Device: "emu0", Address: "10.8.0.2/24"},
				Delay: 20 * ms,
			}
			c.change(&config)
			link, err := Open(config)
			if err == nil {
				link.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, want it to say %q", err, c.want)
			}
		})
	}
}
