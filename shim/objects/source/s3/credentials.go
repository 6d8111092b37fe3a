package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

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

// credentialsError is that there are no credentials; what says so to those who are not the operator.
type credentialsError struct {
	error
	what string
	// passing: there may be some in a moment.
	passing bool
}

func (e *credentialsError) Unwrap() error { return e.error }

// FromSecret are the credentials of a secret, which is read for each request, so that a changed one counts from the next request on.
func FromSecret(load func(context.Context) (secret.Secret, error)) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		s, err := load(ctx)
		if err == nil && (s.Get(keyID) == "" || s.Get(keySecret) == "") {
			err = errIncomplete
		}
		if err != nil {
			return aws.Credentials{}, &credentialsError{error: err, what: "its credentials cannot be read"}
		}
		return aws.Credentials{AccessKeyID: s.Get(keyID), SecretAccessKey: s.Get(keySecret), SessionToken: s.Get(keyTemporary)}, nil
	})
}

// Anonymous are none: requests are not signed.
func Anonymous() aws.CredentialsProvider { return aws.AnonymousCredentials{} }

// Workload are the credentials that the AWS SDK finds for this process by its default chain: in its environment, by the identity of
// its pod, or of its machine. They are looked for when they are first needed, and again before they expire. region is whose token
// service is asked if the environment names none.
func Workload(region string) aws.CredentialsProvider { return &workload{region: region} }

type workload struct {
	region string

	mu    sync.Mutex
	chain aws.CredentialsProvider // nil: its configuration has not been read
}

// Retrieve implements aws.CredentialsProvider.
func (w *workload) Retrieve(ctx context.Context) (aws.Credentials, error) {
	chain, err := w.configured(ctx)
	if err != nil {
		return aws.Credentials{}, &credentialsError{error: err, what: noWorkload}
	}
	found, err := chain.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, &credentialsError{error: err, what: noWorkload, passing: true}
	}
	return found, nil
}

const noWorkload = "the node's daemon has no credentials for it"

// renewBefore is how long before they expire credentials are renewed: longer than a request takes, and than clocks differ.
const renewBefore = 5 * time.Minute

func (w *workload) configured(ctx context.Context) (aws.CredentialsProvider, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chain == nil {
		c, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithDefaultRegion(w.region),
			awsconfig.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = renewBefore }))
		if err != nil {
			return nil, err
		}
		w.chain = c.Credentials
	}
	return w.chain, nil
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
