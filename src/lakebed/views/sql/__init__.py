"""View sets that SQL defines: declaration, rules, analysis."""
