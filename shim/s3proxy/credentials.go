package s3proxy

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// credentialsPath is where the SDKs get their credentials. No bucket can be named so.
	credentialsPath = "/_headstart/credentials"
	// lifetime is how long credentials are good. SDKs ask again some minutes before the end.
	lifetime = 6 * time.Hour
	// idPrefix begins access key ids. The rest is when they end, in seconds since 1970.
	idPrefix = "HEADSTART"
	keySize  = 32
)

func newKey() []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return key
}

// env is what tells the program's SDK where S3 is and who it is there.
func (n note) env(region string) map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL_S3":                "http://{address}",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://{address}" + credentialsPath,
		"AWS_CONTAINER_AUTHORIZATION_TOKEN":  n.derive("authorization"),
		"AWS_REGION":                         region,
		"AWS_DEFAULT_REGION":                 region,
	}
}

// derive returns a secret for a purpose, of 40 characters as those of AWS.
func (n note) derive(purpose string) string {
	mac := hmac.New(sha256.New, n.Key)
	mac.Write([]byte(purpose))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))[:40]
}

// secret returns what belongs to an access key id: so nothing is to be remembered, and the daemon's next process knows
// the same. expired: it was good once.
func (n note) secret(id string, now time.Time) (secret, token string, known, expired bool) {
	text, ok := strings.CutPrefix(id, idPrefix)
	if !ok || len(text) != len("1234567890") {
		return "", "", false, false
	}
	seconds, err := strconv.ParseUint(text, 10, 63) // takes no sign
	if err != nil {
		return "", "", false, false
	}
	end := time.Unix(int64(seconds), 0)
	return n.derive("secret " + id), n.derive("token " + id), true, !now.Before(end)
}

// answerCredentials answers in the form of the SDKs' container credentials. Who has the token is the program: it reads
// it from its environment, and what makes the program send requests does not know it.
func (h *handler) answerCredentials(w http.ResponseWriter, r *http.Request) {
	if !hmac.Equal([]byte(r.Header.Get("Authorization")), []byte(h.sandbox.derive("authorization"))) {
		http.Error(w, "the header Authorization must have the value of AWS_CONTAINER_AUTHORIZATION_TOKEN", http.StatusUnauthorized)
		return
	}
	end := time.Now().Add(lifetime).Truncate(time.Second)
	id := fmt.Sprintf("%s%010d", idPrefix, end.Unix())
	secret, token, _, _ := h.sandbox.secret(id, time.Now())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(map[string]string{ // nobody is left to tell
		"AccessKeyId": id, "SecretAccessKey": secret, "Token": token, "Expiration": end.UTC().Format(time.RFC3339),
	})
}

// requestID is a new id of an answer, in the form that S3's have.
func requestID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return strings.ToUpper(hex.EncodeToString(b[:]))
}
