package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/kube/served"
)

// ServerReport is what an API server has of what Muster can do without. Field names are stable.
type ServerReport struct {
	// Version is what the server is, such as v1.36.3; BehavesLike the version of Kubernetes whose feature gates it has, such as 1.34, ""
	// if it does not say.
	Version     string       `json:"version"`
	BehavesLike string       `json:"behavesLike,omitempty"`
	Needs       []NeedReport `json:"needs"`
}

// NeedReport is one thing that the server has or lacks.
type NeedReport struct {
	Name string `json:"name"`
	// Since is the version of Kubernetes that brought it; "" if it does not come with Kubernetes.
	Since string `json:"since,omitempty"`
	// Has is a guess for a feature gate, by the server's version: no client can see it.
	Has   bool     `json:"has"`
	Gate  bool     `json:"gate,omitempty"`
	Roles []string `json:"roles"`
	// Plugin is the scheduler's plugin without which nobody asks for it.
	Plugin string `json:"plugin,omitempty"`
	// Lost is what does not work without it.
	Lost string `json:"lost"`
}

func newKubernetes(d Deps) *cobra.Command {
	var output string
	o := app.ClientOptions{QPS: -1, UserAgent: "muster/" + d.Version}
	c := &cobra.Command{
		Use: "kubernetes", Short: "Show what the API server has of what Muster can do without, and what is lost without it", Args: cobra.NoArgs,
		Long: "Show what the API server has of what Muster can do without, and what is lost without it. Each role says the same of itself when it\n" +
			"starts, and when it changes. Kinds are looked for; a feature gate is taken to be as the server's version has it by default.",
		Example: "  muster debug kubernetes",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := form.Check(output); err != nil {
				return err
			}
			config, err := app.RESTConfig(o)
			if err != nil {
				return err
			}
			s, err := lookAt(config)
			if err != nil {
				return advise(err, config.Host)
			}
			r := reportServer(&s)
			return form.Emit(c.OutOrStdout(), output, r, func() string { return drawServer(r) })
		},
	}
	fs := c.Flags()
	clientFlags(fs, &o)
	fs.StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return c
}

// lookAt asks an API server what it has.
func lookAt(config *rest.Config) (served.Server, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 10 * time.Second
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return served.Server{}, fmt.Errorf("build the client: %w", err)
	}
	return served.Look(client)
}

func reportServer(s *served.Server) *ServerReport {
	r := &ServerReport{Version: s.Version}
	if s.Minor > 0 {
		r.BehavesLike = served.Minor(s.Minor)
	}
	for _, n := range served.Needs() {
		row := NeedReport{Name: string(n.Name), Has: s.Has(n.Name), Gate: n.Gate(), Roles: n.Roles, Plugin: n.Plugin, Lost: n.Lost}
		if n.Since > 0 {
			row.Since = served.Minor(n.Since)
		}
		r.Needs = append(r.Needs, row)
	}
	return r
}

func drawServer(r *ServerReport) string {
	var rows [][]string
	var lost strings.Builder
	for i := range r.Needs {
		n := &r.Needs[i]
		has := map[bool]string{true: "yes", false: "NO"}[n.Has]
		if n.Gate {
			has = map[bool]string{true: "on", false: "OFF"}[n.Has] + " by default"
		}
		who := strings.Join(n.Roles, ", ")
		if n.Plugin != "" {
			who += ", with plugin " + n.Plugin
		}
		rows = append(rows, []string{n.Name, has, n.Since, who})
		if !n.Has {
			for indent, text := "", fmt.Sprintf("Without %s %s.", n.Name, n.Lost); text != ""; indent = "  " {
				var line string
				line, text = form.Break(text, form.Width-len(indent))
				lost.WriteString(indent + line + "\n")
			}
		}
	}
	like := ""
	if r.BehavesLike != "" && !strings.HasPrefix(r.Version, "v"+r.BehavesLike+".") {
		like = ", which behaves like " + r.BehavesLike
	}
	text := fmt.Sprintf("Kubernetes %s%s\n\n", r.Version, like) + form.Table([]form.Column{{Title: "WHAT", Keep: true}, {Title: "THERE", Keep: true}, {Title: "SINCE", Keep: true}, {Title: "FOR", Keep: true}}, rows)
	if lost.Len() > 0 {
		text += "\n" + lost.String()
	}
	return text
}
