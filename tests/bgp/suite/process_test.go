// The processes that a test starts, and what they say.

package suite

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// process is a program that ends when its standard input closes, and so at the latest with the test process.
type process struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	// ended is closed when the process has, and when all that it said has been read.
	ended chan struct{}

	lock sync.Mutex
	said []string
}

// startProcess starts a program. heard gets each line of its standard output; without it, they are kept with those of
// standard error.
func startProcess(t *testing.T, name string, heard func(line []byte), binary string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	// One that is halted would not notice that its standard input closes.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if heard == nil {
		heard = p.keep
	}
	var readers sync.WaitGroup
	read := func(from io.Reader, each func([]byte)) {
		readers.Go(func() {
			lines := bufio.NewScanner(from)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				each(lines.Bytes())
			}
			_, _ = io.Copy(io.Discard, from)
		})
	}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read(stdout, heard)
	read(stderr, p.keep)
	go func() {
		readers.Wait()
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, strings.Join(p.last(40), "\n"))
		}
	})
	return p
}

func (p *process) keep(line []byte) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.said = append(p.said, string(line))
}

// last are the last lines that were kept.
func (p *process) last(n int) []string {
	p.lock.Lock()
	defer p.lock.Unlock()
	return append([]string(nil), p.said[max(0, len(p.said)-n):]...)
}

// times is how many lines contain the text.
func (p *process) times(text string) int {
	p.lock.Lock()
	defer p.lock.Unlock()
	n := 0
	for _, line := range p.said {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// lives says whether the process has not ended.
func (p *process) lives() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// signal halts the process, or lets it go on.
func (p *process) signal(what syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(what); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process as a lost machine would, and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}
