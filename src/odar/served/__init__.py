"""What is learned from served answers: alignment of energies, agreement of agents, targets. Holds no text."""
