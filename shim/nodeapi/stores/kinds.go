package stores

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

// The kinds of stores, by the scheme of the references that they take. KindHTTP takes https, too.
const (
	KindS3    = reference.S3
	KindRedis = reference.Redis
	KindHTTP  = reference.HTTP
)

// kindNames are the kinds in words.
const kindNames = "s3, redis and http"

// entry is one list item of the file: exactly one kind.
type entry struct {
	Name       string            `json:"name"`
	Namespaces []string          `json:"namespaces"`
	Shared     []string          `json:"shared"`
	Fresh      map[string]string `json:"fresh"`
	S3         *s3Entry          `json:"s3"`
	Redis      *redisEntry       `json:"redis"`
	HTTP       *httpEntry        `json:"http"`
}

// kind is what an entry says of its one kind.
type kind interface {
	validate(check checker)
	// fill writes it into the store, with the defaults.
	fill(s *Store)
}

// kinds are those that the entry has.
func (e entry) kinds() (all []kind) {
	if e.S3 != nil {
		all = append(all, e.S3)
	}
	if e.Redis != nil {
		all = append(all, e.Redis)
	}
	if e.HTTP != nil {
		all = append(all, e.HTTP)
	}
	return all
}

// store returns the entry with its defaults; one without a kind is not valid.
func (e entry) store() Store {
	s := Store{Name: e.Name, Namespaces: e.Namespaces, Shared: e.Shared}
	for bucket, text := range e.Fresh {
		if s.Fresh == nil {
			s.Fresh = map[string]time.Duration{}
		}
		s.Fresh[bucket], _ = parseFresh(text) // which validate has looked at
	}
	for _, k := range e.kinds() {
		k.fill(&s)
	}
	return s
}

type s3Entry struct {
	Endpoint          string            `json:"endpoint"`
	Region            string            `json:"region"`
	PathStyle         bool              `json:"pathStyle"`
	Buckets           []string          `json:"buckets"`
	CredentialsSecret string            `json:"credentialsSecret"`
	Credentials       string            `json:"credentials"`
	Write             map[string]string `json:"write"`
}

func (e *s3Entry) fill(s *Store) {
	s.Kind, s.Endpoint, s.Region, s.PathStyle = KindS3, e.Endpoint, cmp.Or(e.Region, DefaultRegion), e.PathStyle
	s.Buckets, s.Secret, s.Credentials, s.Write = e.Buckets, e.CredentialsSecret, e.Credentials, e.Write
}

func (e *s3Entry) validate(check checker) {
	problem, fix := endpointProblem(e.Endpoint)
	check(".s3.endpoint", e.Endpoint, problem, fix)
	if e.Region != "" {
		check(".s3.region", e.Region, labelProblem(e.Region), field.LabelFix)
	}
	switch {
	case e.Credentials == "" && e.CredentialsSecret == "":
		check(".s3.credentialsSecret", "", "is missing", secretFix+"; or write credentials: "+strings.Join(Credentials, " or "))
	case e.Credentials == "":
		check.secret(".s3.credentialsSecret", e.CredentialsSecret)
	case e.CredentialsSecret != "":
		check(".s3.credentials", e.Credentials, "stands beside credentialsSecret", "remove one of the two")
	case !slices.Contains(Credentials, e.Credentials):
		check(".s3.credentials", e.Credentials, "is not where credentials come from", "use "+strings.Join(Credentials, " or ")+", or name a secret by credentialsSecret")
	}
	check.buckets(".s3.buckets", e.Buckets, reference.S3Buckets)
	for _, bucket := range slices.Sorted(maps.Keys(e.Write)) {
		at := fmt.Sprintf(".s3.write[%q]", bucket)
		if !slices.Contains(e.Buckets, bucket) {
			check(at, bucket, "is of no bucket of the store", "name one of the store's buckets")
		}
		if how := e.Write[bucket]; !slices.Contains(Writes, how) {
			check(at, how, "is not how functions write", "use "+strings.Join(Writes, " or ")+", or leave the bucket out if they only read")
		}
	}
}

// maxDatabase is far above the databases that a server of Redis has; the default is 16.
const maxDatabase = 1 << 20

type redisEntry struct {
	Address           string   `json:"address"`
	TLS               bool     `json:"tls"`
	DB                int      `json:"db"`
	Keyspaces         []string `json:"keyspaces"`
	CredentialsSecret string   `json:"credentialsSecret"`
}

func (e *redisEntry) fill(s *Store) {
	s.Kind, s.Endpoint, s.TLS, s.Database = KindRedis, e.Address, e.TLS, e.DB
	s.Buckets, s.Secret = e.Keyspaces, e.CredentialsSecret
}

func (e *redisEntry) validate(check checker) {
	problem, fix := addressProblem(e.Address)
	check(".redis.address", e.Address, problem, fix)
	if e.DB < 0 || e.DB > maxDatabase {
		check(".redis.db", strconv.Itoa(e.DB), "is not the number of a database", "use 0 or the number that the server knows it by")
	}
	check.secret(".redis.credentialsSecret", e.CredentialsSecret)
	check.buckets(".redis.keyspaces", e.Keyspaces, reference.RedisBuckets)
}

type httpEntry struct {
	Hosts             []string `json:"hosts"`
	PrivateAddresses  bool     `json:"privateAddresses"`
	CredentialsSecret string   `json:"credentialsSecret"`
}

func (e *httpEntry) fill(s *Store) {
	s.Kind, s.Buckets, s.Secret, s.Public = KindHTTP, e.Hosts, e.CredentialsSecret, !e.PrivateAddresses
}

func (e *httpEntry) validate(check checker) {
	check.secret(".http.credentialsSecret", e.CredentialsSecret)
	check.buckets(".http.hosts", e.Hosts, reference.HTTPBuckets)
}
