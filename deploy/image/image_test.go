package image

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/install"
)

const root = "../.."

// TestRecipes: what a recipe copies and builds exists, it compiles with the version of Go that the module asks for, and what comes
// out runs its one program as somebody without rights.
func TestRecipes(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	minor := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(module))[1]
	for file, want := range map[string]struct{ program, base, cgo string }{
		"Dockerfile":      {install.Program, "distroless/static-", "CGO_ENABLED=0"},
		"Dockerfile.node": {install.NodeProgram, "distroless/base-", "CGO_ENABLED=1"},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var from []string
			var user, entry, built string
			for line := range strings.Lines(string(text)) {
				word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
				args := strings.Fields(rest)
				switch word {
				case "FROM":
					from = append(from, rest)
				case "USER":
					user = rest
				case "ENTRYPOINT":
					entry = rest
				case "COPY":
					if strings.HasPrefix(args[0], "--from") {
						if args[1] != "/out/"+want.program || args[2] != "/"+want.program {
							t.Errorf("it copies %q out of the build", rest)
						}
						continue
					}
					for _, source := range args[:len(args)-1] {
						if _, err := os.Stat(filepath.Join(root, source)); err != nil {
							t.Errorf("COPY: %v", err)
						}
					}
				case "RUN":
					if strings.Contains(rest, "go build") {
						built = rest
					}
				}
			}
			if len(from) != 2 || !strings.Contains(from[0], "golang:"+minor+" ") || !strings.Contains(from[1], want.base) {
				t.Errorf("it is built from %q; the module asks for Go %s", from, minor)
			}
			id, _, _ := strings.Cut(user, ":")
			if n, err := strconv.Atoi(id); err != nil || n == 0 {
				t.Errorf("it runs as %q: a number other than 0 is what a cluster can check", user)
			}
			var argv []string
			if err := json.Unmarshal([]byte(entry), &argv); err != nil || len(argv) != 1 || argv[0] != "/"+want.program {
				t.Errorf("it starts %s: %v", entry, err)
			}
			if !strings.Contains(built, want.cgo) || !strings.HasSuffix(built, " ./cmd/"+want.program) {
				t.Errorf("it builds by %q", built)
			}
			if _, err := os.Stat(filepath.Join(root, "cmd", want.program, "main.go")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestImports: the recipes copy every folder that the programs are built from.
func TestImports(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		found, err := filepath.Glob(filepath.Join(root, e.Name(), "*", "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !e.IsDir() || len(found) == 0 || strings.HasPrefix(e.Name(), ".") || e.Name() == "cmd" || e.Name() == "bench" || e.Name() == "conformance" {
			continue
		}
		if !strings.Contains(string(text), "\nCOPY "+e.Name()+" ") {
			t.Errorf("folder %s has Go packages and is not copied", e.Name())
		}
	}
}
