package strategy

import (
	"fmt"
	"strconv"
)

// asked reports whether the job asks for something by its exit code.
func (s *situation) asked() bool { return s.answer(s.diagnosis) != "" }

func (s *situation) answer(d Diagnosis) ExitAnswer {
	if !d.Fatal || d.ExitCode == 0 {
		return ""
	}
	return s.policy.ExitCodes[strconv.Itoa(d.ExitCode)]
}

// answerExit does what an exit code of the job asks for.
func answerExit(s *situation) Decision {
	why := fmt.Sprintf("recovery.exit_codes answers exit code %d by %q", s.diagnosis.ExitCode, s.answer(s.diagnosis))
	switch s.answer(s.diagnosis) {
	case Requeue:
		return s.stop(Retry, why)
	case NoRetry:
		return s.stop(Failed, why)
	}
	n := s.spent(func(d Diagnosis) bool { return s.answer(d) == RetryExit })
	if n.counted > s.policy.TransientRetries || n.unproven > unprovenRefills {
		return s.stop(Retry, fmt.Sprintf("%s, and recovery.transient_retries = %d are used up", why,
			s.policy.TransientRetries))
	}
	d := samePlan("again: " + why)(s)
	d.After = Seconds(waits[min(n.counted, len(waits)-1)])
	return d
}
