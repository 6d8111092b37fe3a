package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunRefusesEnvironment(t *testing.T) {
	for name, value := range map[string]string{"FIRE_EVERY": "0", "PORT": "http"} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), func(n string) string {
				if n == name {
					return value
				}
				return ""
			})
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v does not name %s", err, name)
			}
		})
	}
}
