# Fits every case of mixed_model_cases.json with lme4 and writes mixed_model_lme4.json beside it:
#   apt-get install r-base-core r-cran-lme4 r-cran-jsonlite && Rscript mixed_model_lme4.R
# Each case is fitted by two optimisers at tight tolerances; the fit with the smaller REML criterion is kept.
library(lme4)
library(jsonlite)

controls <- list(
  lmerControl(optimizer = "nloptwrap", calc.derivs = FALSE,
              optCtrl = list(xtol_abs = 1e-13, xtol_rel = 1e-13, ftol_abs = 1e-15, ftol_rel = 1e-15, maxeval = 1e5)),
  lmerControl(optimizer = "bobyqa", calc.derivs = FALSE, optCtrl = list(rhoend = 1e-12, maxfun = 1e5))
)

fit_case <- function(case) {
  frame <- data.frame(y = unlist(case$values) - case$null, group = unlist(case$groups))
  fits <- lapply(controls, function(control) {
    suppressMessages(lmer(y ~ 1 + (1 | group), data = frame, REML = TRUE, control = control))
  })
  fit <- fits[[which.min(sapply(fits, REMLcrit))]]
  between <- as.data.frame(VarCorr(fit))$vcov[1]
  within <- sigma(fit)^2
  z <- coef(summary(fit))[1, "t value"]
  list(
    intercept = unname(fixef(fit)) + case$null, standard_error = coef(summary(fit))[1, "Std. Error"],
    z = z, p_value = 2 * pnorm(-abs(z)), variance_between = between, variance_within = within,
    icc = between / (between + within), reml_criterion = REMLcrit(fit), is_singular = isSingular(fit)
  )
}

cases <- fromJSON("mixed_model_cases.json", simplifyVector = FALSE)
result <- list(
  made_with = list(R = R.version.string, lme4 = as.character(packageVersion("lme4"))),
  fits = lapply(cases, fit_case)
)
write(toJSON(result, auto_unbox = TRUE, digits = I(15), pretty = 2), "mixed_model_lme4.json")
