package nodes

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

// Environment variables that lead to a secret.
const (
	secretVariable     = "GPURUN_SECRET"
	secretFileVariable = "GPURUN_SECRET_FILE"
)

const (
	secretBytes    = 32
	mostSecretText = 4096 // bytes to read from a file
)

// NewSecret makes a secret for the nodes of a launch, 32 random bytes in hexadecimal.
func NewSecret() string {
	secret := make([]byte, secretBytes)
	rand.Read(secret) // it never fails
	return hex.EncodeToString(secret)
}

// PrintSecret writes a new secret as a line or as a JSON document.
func PrintSecret(to io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(to).Encode(map[string]string{"secret": NewSecret()})
	}
	_, err := fmt.Fprintln(to, NewSecret())
	return err
}

// givenSecret returns the secret in the environment, nil for none, and the variable that it comes from.
func givenSecret(vars commandline.Environ) (secret []byte, variable string, err error) {
	if path := vars[secretFileVariable]; path != "" {
		secret, err = readSecretFile(path)
		return secret, secretFileVariable, prefix(secretFileVariable, err)
	}
	if text := vars[secretVariable]; text != "" {
		secret, err = parseSecret(text)
		return secret, secretVariable, prefix(secretVariable, err)
	}
	return nil, "", nil
}

// prefix adds a context to an error.
func prefix(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

const makeOne = "`gpurun secret` makes one"

// parseSecret reads a secret in hexadecimal or base64. The error does not quote it.
func parseSecret(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	secret, err := hex.DecodeString(text)
	if err != nil {
		standard := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "=")) // base64url, too
		secret, err = base64.RawStdEncoding.DecodeString(standard)
	}
	switch {
	case text == "":
		return nil, errext.Errorf(makeOne, "the secret is empty")
	case err != nil:
		return nil, errext.Errorf(makeOne, "the secret is neither hexadecimal nor base64")
	case len(secret) < secretBytes:
		return nil, errext.Errorf(makeOne, "the secret has %d bytes, and needs %d", len(secret), secretBytes)
	}
	return secret, nil
}

// readSecretFile reads the secret in a user's file, which may be a link, as in Kubernetes.
func readSecretFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readSecret(f)
}

// readSecret reads a secret from a file that other users cannot read.
func readSecret(f *os.File) ([]byte, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return nil, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if err := isPrivate(f.Name(), stat); err != nil {
		return nil, err
	}
	return parseFile(f)
}

func parseFile(f *os.File) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, mostSecretText+1))
	if err != nil {
		return nil, err
	}
	defer clear(text)
	if len(text) > mostSecretText {
		return nil, errext.Errorf(makeOne, "%s has more than %d bytes", f.Name(), mostSecretText)
	}
	secret, err := parseSecret(string(text))
	return secret, prefix(f.Name(), err)
}

// isPrivate refuses a file that other users may read or may have written. A file of root may be open to a
// group, as in a Kubernetes volume with an fsGroup.
func isPrivate(path string, stat unix.Stat_t) error {
	foreign := uint32(0o077)
	if stat.Uid == 0 && os.Geteuid() != 0 {
		foreign = 0o027
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return &os.PathError{Op: "read", Path: path, Err: errors.New("it is not a regular file")}
	case stat.Uid != 0 && int64(stat.Uid) != int64(os.Geteuid()):
		return errext.Errorf("make a copy of your own, with mode 0600", "%s belongs to another user (uid %d)", path, stat.Uid)
	case stat.Mode&foreign != 0:
		hint := fmt.Sprintf("chmod 600 %s; for a volume of Kubernetes set defaultMode: 0400", commandline.PastePath(path))
		return errext.Errorf(hint, "%s is open to other users (mode %#o)", path, stat.Mode&0o777)
	}
	return nil
}
