package destinations

import "cmp"

// entry is one list item of the file: exactly one kind.
type entry struct {
	Name       string         `json:"name"`
	Namespaces []string       `json:"namespaces"`
	Origin     Origin         `json:"origin"`
	Unused     *int           `json:"unused"`
	Postgres   *postgresEntry `json:"postgres"`
	Redis      *redisEntry    `json:"redis"`
	TLS        *tlsEntry      `json:"tls"`
	TCP        *tcpEntry      `json:"tcp"`
}

type tlsFields struct {
	Roots      string `json:"roots"`
	ServerName string `json:"serverName"`
}

type postgresEntry struct {
	Address           string     `json:"address"`
	User              string     `json:"user"`
	Database          string     `json:"database"`
	CredentialsSecret string     `json:"credentialsSecret"`
	TLS               *tlsFields `json:"tls"`
}

type redisEntry struct {
	Address           string     `json:"address"`
	User              string     `json:"user"`
	DB                int        `json:"db"`
	CredentialsSecret string     `json:"credentialsSecret"`
	TLS               *tlsFields `json:"tls"`
}

type tlsEntry struct {
	Address string `json:"address"`
	tlsFields
}

type tcpEntry struct {
	Address string `json:"address"`
}

// kinds are the names of those that the entry has.
func (e entry) kinds() (all []string) {
	for _, k := range []struct {
		name string
		has  bool
	}{{KindTCP, e.TCP != nil}, {KindTLS, e.TLS != nil}, {KindPostgres, e.Postgres != nil}, {KindRedis, e.Redis != nil}} {
		if k.has {
			all = append(all, k.name)
		}
	}
	return all
}

// destination returns the entry with its defaults; of several kinds it has the last.
func (e entry) destination(standard Origin) Destination {
	d := Destination{Name: e.Name, Namespaces: e.Namespaces, Origin: cmp.Or(e.Origin, standard)}
	if e.Unused != nil {
		d.Unused = *e.Unused
	} else if d.Origin == Node {
		d.Unused = DefaultUnused
	}
	if k := e.TCP; k != nil {
		d.Kind, d.Address = KindTCP, k.Address
	}
	if k := e.TLS; k != nil {
		d.Kind, d.Address, d.TLS = KindTLS, k.Address, k.tls()
	}
	if k := e.Postgres; k != nil {
		d.Kind, d.Address, d.TLS, d.Secret = KindPostgres, k.Address, k.TLS.tls(), k.CredentialsSecret
		d.User, d.Database = k.User, cmp.Or(k.Database, k.User)
	}
	if k := e.Redis; k != nil {
		d.Kind, d.Address, d.TLS, d.Secret = KindRedis, k.Address, k.TLS.tls(), k.CredentialsSecret
		d.User, d.DB = k.User, k.DB
	}
	return d
}

func (t *tlsFields) tls() *TLS {
	if t == nil {
		return nil
	}
	return &TLS{Roots: t.Roots, ServerName: t.ServerName}
}
