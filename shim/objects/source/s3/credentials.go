package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
)

// The keys of a secret.
const (
	keyID        = "access_key_id"
	keySecret    = "secret_access_key"
	keyTemporary = "session_token"
)

var errIncomplete = errors.New(keyID + " and " + keySecret + " are required")

// LoadCredentials reads the secret of that name, which signs the requests to a store:
//
//	access_key_id = AKIA...
//	secret_access_key = ...
//	session_token = ...      (optional)
func LoadCredentials(secrets *os.Root, name string) (secret.Secret, error) {
	s, err := secret.Load(secrets, name, keyID, keySecret, keyTemporary)
	if err != nil {
		return secret.Secret{}, err
	}
	if s.Get(keyID) == "" || s.Get(keySecret) == "" {
		return secret.Secret{}, fmt.Errorf("reading secret %q: %w", name, errIncomplete)
	}
	return s, nil
}

// credentialsError is a secret that cannot be had.
type credentialsError struct{ error }

func provider(load func(context.Context) (secret.Secret, error)) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		s, err := load(ctx)
		if err == nil && (s.Get(keyID) == "" || s.Get(keySecret) == "") {
			err = errIncomplete
		}
		if err != nil {
			return aws.Credentials{}, &credentialsError{err}
		}
		return aws.Credentials{AccessKeyID: s.Get(keyID), SecretAccessKey: s.Get(keySecret), SessionToken: s.Get(keyTemporary)}, nil
	})
}

// signer signs each request by a signer of its own. The SDK's keeps the key that it derived last,
// by access key id and day, and so goes on signing with a secret that has been changed under the
// same id. To derive a key takes four HMACs, some microseconds.
type signer struct{}

// SignHTTP implements sdk.HTTPSignerV4.
func (signer) SignHTTP(ctx context.Context, c aws.Credentials, r *http.Request, payloadHash, service, region string, at time.Time, options ...func(*v4.SignerOptions)) error {
	// S3 has its paths escaped once, other services twice.
	once := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	return once.SignHTTP(ctx, c, r, payloadHash, service, region, at, options...)
}
