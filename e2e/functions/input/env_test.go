package input

import (
	"strings"
	"testing"
)

func TestStoreIsMadeOnce(t *testing.T) {
	env := map[string]string{"S3_ENDPOINT": "http://127.0.0.1:1", "S3_REGION": "us-east-1"}
	store := storeOf(func(name string) string { return env[name] })
	first, err := store()
	if err != nil {
		t.Fatal(err)
	}
	if second, _ := store(); first != second {
		t.Error("two calls, two stores")
	}
	if _, err := storeOf(func(string) string { return "" })(); err == nil || !strings.Contains(err.Error(), "S3_ENDPOINT") {
		t.Errorf("error %v does not name the variable", err)
	}
}
