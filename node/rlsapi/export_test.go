package rlsapi

// LetHang sets how many requests may hang, before any has come.
func (s *Server) LetHang(most int64) { s.mostHanging = most }
