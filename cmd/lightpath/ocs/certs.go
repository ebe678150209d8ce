package ocs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/controller/rpc/labcerts"
)

// labLife is how long certificates for a lab are good.
const labLife = 365 * 24 * time.Hour

// certsReport lists the files that ocs certs made.
type certsReport struct {
	CA         string   `json:"ca"`
	Controller certPair `json:"controller"`
	Rank       certPair `json:"rank"`
	Viewer     certPair `json:"viewer"`
	Operator   certPair `json:"operator"`
	Admin      certPair `json:"admin"`
}

type certPair struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

func newCerts() *cobra.Command {
	var dir string
	var hosts []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "certs --dir D --host h1,h2",
		Short: "Make certificates for a lab: of controllers, ranks and operators",
		Long: `Makes an authority and certificates for trials, not for production: for controllers on the named hosts,
ranks, viewers, operators and administrators (docs/operations.md, Roles). They are valid for a year, and only their
owner can read them. Existing files are not overwritten.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			switch {
			case dir == "":
				return errors.New("--dir is required")
			case len(hosts) == 0:
				return errors.New("--host is required: the names or addresses by which controllers are reached")
			}
			dir, err := filepath.Abs(dir) // files that name these may be elsewhere
			if err != nil {
				return fmt.Errorf("--dir: %w", err)
			}
			r, err := makeCerts(dir, hosts)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(r)
			}
			cli.Printf(`certificates for a lab, good for a year; keep %s apart, or delete it
# ocsd.yaml on the hosts of controllers
tls: {ca: %q, cert: %q, key: %q}
# the fabric file, on the hosts of ranks
controller: {endpoints: [%q], ca: %q, cert: %q, key: %q}
# operators
lightpath ocs status --controller %s:7443 --ca %s --cert %s --key %s
`, filepath.Join(dir, "ca.key"), r.CA, r.Controller.Cert, r.Controller.Key,
				hosts[0]+":7443", r.CA, r.Rank.Cert, r.Rank.Key, hosts[0], r.CA, r.Operator.Cert, r.Operator.Key)
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&dir, "dir", "", "directory for the files; created if it is missing")
	fl.StringSliceVar(&hosts, "host", nil, "names or addresses of controllers")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// makeCerts makes all files, or none if one exists.
func makeCerts(dir string, hosts []string) (certsReport, error) {
	pair := func(name string) certPair {
		return certPair{filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")}
	}
	r := certsReport{filepath.Join(dir, "ca.pem"), pair("controller"), pair("rank"), pair("viewer"), pair("operator"),
		pair("admin")}
	paths := []string{r.CA, pair("ca").Key}
	for _, p := range []certPair{r.Controller, r.Rank, r.Viewer, r.Operator, r.Admin} {
		paths = append(paths, p.Cert, p.Key)
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			return r, fmt.Errorf("--dir %s: %s is there already", dir, filepath.Base(path))
		}
	}
	a, err := labcerts.Create(dir, labLife)
	for _, s := range []labcerts.Subject{{Name: "controller", Hosts: hosts}, {Name: "rank", Units: []string{rpc.RoleRank}},
		{Name: "viewer", Units: []string{rpc.RoleViewer}}, {Name: "operator", Units: []string{rpc.RoleOperator}},
		{Name: "admin", Units: []string{rpc.RoleAdmin}}} {
		if err == nil {
			s.Life = labLife
			err = a.Issue(s)
		}
	}
	return r, err
}
